//! What a log leaves to the one behind it: everything that is no group. Written once, for the log that users open and for
//! those that tests put in its place. Holds no behaviour of its own.

/// What a log leaves to the one behind it.
macro_rules! behind {
    ($this:ident, $back:expr) => {
        fn instance(&$this) -> [u8; 16] {
            $back.instance()
        }
        fn location(&$this) -> PathBuf {
            $back.location()
        }
        fn anchor(&$this) -> Result<Option<Anchor>, StorageError> {
            $back.anchor()
        }
        fn settle_anchor(&$this) -> Result<(), StorageError> {
            $back.settle_anchor()
        }
        fn change_shelves(&$this, changes: &[ShelfChange]) -> Result<(), StorageError> {
            $back.change_shelves(changes)
        }
        fn shelf_get(&$this, shelf: Shelf, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
            $back.shelf_get(shelf, key)
        }
        fn shelf_has(&$this, shelf: Shelf, key: &[u8]) -> Result<bool, StorageError> {
            $back.shelf_has(shelf, key)
        }
        fn shelf_keys(
            &$this,
            shelf: Shelf,
            prefix: &[u8],
            from: ScanFrom<'_>,
            limit: usize,
        ) -> Result<Vec<Vec<u8>>, StorageError> {
            $back.shelf_keys(shelf, prefix, from, limit)
        }
        fn shelf_scan(
            &$this,
            shelf: Shelf,
            prefix: &[u8],
            from: ScanFrom<'_>,
            limit: usize,
        ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StorageError> {
            $back.shelf_scan(shelf, prefix, from, limit)
        }
        fn put_blob(&$this, hash: &BlobHash, bytes: &[u8]) -> Result<(), StorageError> {
            $back.put_blob(hash, bytes)
        }
        fn blob(&$this, hash: &BlobHash) -> Result<Option<Vec<u8>>, StorageError> {
            $back.blob(hash)
        }
        fn blobs(&$this, first_byte: u8) -> Result<Vec<BlobHash>, StorageError> {
            $back.blobs(first_byte)
        }
        fn remove_blob(&$this, hash: &BlobHash) -> Result<(), StorageError> {
            $back.remove_blob(hash)
        }
        fn bytes_on_disk(&$this) -> Result<u64, StorageError> {
            $back.bytes_on_disk()
        }
        fn held(&$this) -> Result<Vec<(RunId, String)>, StorageError> {
            $back.held()
        }
        fn check_files(&$this) -> Vec<DamagedPart> {
            $back.check_files()
        }
        fn low_on_space(&$this) -> Option<String> {
            $back.low_on_space()
        }
        fn file_of_blob(&$this, hash: &BlobHash) -> PathBuf {
            $back.file_of_blob(hash)
        }
        fn origin(&$this) -> Option<StoreOrigin> {
            $back.origin()
        }
        fn note_epoch(&$this, tail: Anchor) -> Result<(), StorageError> {
            $back.note_epoch(tail)
        }
        fn format(&$this) -> u32 {
            $back.format()
        }
    };
}
pub(in crate::log) use behind;
