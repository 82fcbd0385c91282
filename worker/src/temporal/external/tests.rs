//! Messages that are sealed and opened, and files that are not what they were.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use temporalio_common::protos::temporal::api::common::v1::{Memo, Payloads, SearchAttributes};
use temporalio_common::protos::temporal::api::workflowservice::v1::StartWorkflowExecutionRequest as Start;

use super::*;
use crate::capability::at_rest::StoreKeys;

const ABOVE: usize = 10_000;

fn external(directory: &Path) -> External {
    with(directory, AtRest::default())
}

fn with(directory: &Path, at_rest: AtRest) -> External {
    External::new(Some(&PayloadStore { directory: directory.to_owned(), above: ABOVE }), at_rest).unwrap()
}

async fn keys(home: &Path, name: &str, digit: &str) -> AtRest {
    let path = home.join(name);
    fs::write(&path, digit.repeat(64)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    AtRest::load(&StoreKeys { key: Some(format!("file:{}", path.display())), old_keys: Vec::new() }).await.unwrap()
}

fn text(length: usize) -> Payload {
    payload_out(&bosun_engine::Payload::raw_json(format!("\"{}\"", "x".repeat(length))))
}

fn start(input: Vec<Payload>) -> Start {
    Start { input: Some(Payloads { payloads: input }), ..Default::default() }
}

fn input(start: &Start) -> &[Payload] {
    &start.input.as_ref().unwrap().payloads
}

/// The one file.
fn file(directory: &Path) -> PathBuf {
    let folder = entry(&directory.join("sha256"));
    entry(&folder)
}

fn entry(folder: &Path) -> PathBuf {
    let all: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().unwrap()
}

#[tokio::test]
async fn what_is_long_goes_into_one_file_and_comes_back() {
    let home = tempfile::tempdir().unwrap();
    let external = external(&home.path().join("payloads"));
    let directory = home.path().join("payloads");
    let field = |payload: Payload| HashMap::from([("field".to_owned(), payload)]);
    let whole = Start {
        memo: Some(Memo { fields: field(text(20_000)) }),
        search_attributes: Some(SearchAttributes { indexed_fields: field(text(30_000)) }),
        ..start(vec![text(20_000), text(100)])
    };
    let sealed = external.seal(whole.clone()).await.unwrap();
    assert!(sealed.encoded_len() < 32_000 && input(&sealed)[0] != input(&whole)[0]);
    assert_eq!(input(&sealed)[1], input(&whole)[1], "what is short stays");
    assert_eq!(sealed.search_attributes, whole.search_attributes, "the cluster reads them");
    assert_eq!(input(&sealed)[0].external_payloads[0].size_bytes, text(20_000).encoded_len() as i64);
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    let path = file(&directory);
    assert_eq!(count(&directory), Ok(StoreCount { files: 1, bytes: fs::metadata(&path).unwrap().len(), begun: 0 }));
    // It is named again, and is new from then on.
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(1_000_000);
    fs::File::options().append(true).open(&path).unwrap().set_modified(long_ago).unwrap();
    external.seal(whole.clone()).await.unwrap();
    assert!(fs::metadata(file(&directory)).unwrap().modified().unwrap() > long_ago + Duration::from_secs(1_000));
    let mut opened = sealed;
    external.open(&mut opened).await.unwrap();
    assert_eq!(opened, whole);
}

#[tokio::test]
async fn a_file_that_is_not_what_it_was_is_named() {
    let home = tempfile::tempdir().unwrap();
    let external = external(home.path());
    let sealed = external.seal(start(vec![text(20_000)])).await.unwrap();
    let path = file(home.path());
    let open = async |external: &External| external.open(&mut sealed.clone()).await.unwrap_err();
    let whole = fs::read(&path).unwrap();
    for bad in [[&whole[..], b"x"].concat(), whole[1..].to_vec(), [b"y", &whole[1..]].concat()] {
        fs::write(&path, bad).unwrap();
        let why = open(&external).await;
        assert!(matches!(&why, ExternalError::Altered { path: of, .. } if *of == path), "{why}");
    }
    let mut some = sealed.clone();
    assert!(external.open_some(&mut some).await.is_some());
    assert_eq!(some, sealed, "it stays a reference");
    // Whoever writes it again mends it.
    external.seal(start(vec![text(20_000)])).await.unwrap();
    external.open(&mut sealed.clone()).await.unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(open(&external).await, ExternalError::Missing { path });
    let nowhere = External::default();
    assert!(open(&nowhere).await.to_string().contains("--payload-store"));
}

#[tokio::test]
async fn without_a_directory_it_is_refused() {
    let nowhere = External::default();
    let why = nowhere.seal(start(vec![text(PAYLOAD_MAX)])).await.unwrap_err();
    assert_eq!(why, ExternalError::TooLarge { length: PAYLOAD_MAX + 2, limit: PAYLOAD_MAX });
    let three = start(vec![text(1_500_000), text(1_500_000), text(1_500_000)]);
    let why = nowhere.seal(three).await.unwrap_err();
    assert!(matches!(why, ExternalError::MessageTooLarge { limit: MESSAGE_MAX, .. }), "{why}");
}

#[tokio::test]
async fn many_that_are_short_are_not_one_message_that_is_too_large() {
    let home = tempfile::tempdir().unwrap();
    let place = PayloadStore { directory: home.path().to_owned(), above: PAYLOAD_MAX };
    let external = External::new(Some(&place), AtRest::default()).unwrap();
    let many = start((0..6).map(|n| text(1_000_000 + n)).collect());
    let mut sealed = external.seal(many.clone()).await.unwrap();
    assert!(sealed.encoded_len() <= MESSAGE_MAX - MESSAGE_REST, "{}", sealed.encoded_len());
    assert_eq!(count(home.path()).unwrap().files, 3, "no more than has to be");
    external.open(&mut sealed).await.unwrap();
    assert_eq!(sealed, many);
    assert_eq!(bound_of(vec![100; 50_000], 5_000_000, ABOVE), None, "a reference would be longer");
}

#[tokio::test]
async fn with_a_key_nobody_else_reads_it() {
    let home = tempfile::tempdir().unwrap();
    let (directory, key) = (home.path().join("payloads"), keys(home.path(), "one", "1").await);
    let external = with(&directory, key.clone());
    let mut sealed = external.seal(start(vec![text(20_000)])).await.unwrap();
    with(&directory, key).seal(start(vec![text(20_000)])).await.unwrap();
    let held = fs::read(file(&directory)).unwrap();
    assert!(!held.windows(16).any(|part| part == [b'x'; 16]), "it can be read");
    let place = PayloadStore { directory: directory.clone(), above: ABOVE };
    let plain = External::new(Some(&place), AtRest::default());
    assert!(matches!(plain.err(), Some(AtRestError::MissingKey { .. })), "the directory says that it needs a key");
    external.open(&mut sealed).await.unwrap();
    assert_eq!(input(&sealed), [text(20_000)]);
    // Where nobody has noted it, the file itself says which key it needs.
    let sealed = external.seal(start(vec![text(20_000)])).await.unwrap();
    fs::remove_file(directory.join("keys.json")).unwrap();
    let other = with(&directory, keys(home.path(), "two", "2").await);
    let why = other.open(&mut sealed.clone()).await.unwrap_err();
    assert!(why.to_string().contains("is not in the key ring"), "{why}");
}

#[test]
fn references_of_other_sdks_are_known() {
    let of = |encoding: &str, message: Option<&str>, json: &str| {
        let mut metadata = HashMap::from([("encoding".to_owned(), encoding.as_bytes().to_vec())]);
        metadata.extend(message.map(|name| ("messageType".to_owned(), name.as_bytes().to_vec())));
        Reference::read(&Payload { metadata, data: json.as_bytes().to_vec(), ..Default::default() })
    };
    let message = Some("temporal.api.sdk.v1.ExternalStorageReference");
    let own = Reference::of("0a".repeat(32), 7, true);
    let written = own.payload(9);
    assert_eq!(Reference::read(&written), Some(Ok(own.clone())));
    let claims = format!(r#"{{"hash_algorithm":"sha256","hash_value":"{}","length":"7","coded":"true"}}"#, own.hash);
    let earlier = format!(r#"{{"driver_name":"bosun.directory","driver_claim":{{"claim_data":{claims}}}}}"#);
    assert_eq!(of("json/external-storage-reference", None, &earlier), Some(Ok(own)));
    let theirs = of("json/protobuf", message, r#"{"driverName":"aws.s3","claimData":{"bucket":"b"}}"#);
    assert_eq!(theirs, Some(Err(ExternalError::OtherDriver { driver: "aws.s3".to_owned() })));
    let broken = of("json/protobuf", message, r#"{"driverName":"bosun.directory"}"#);
    assert!(matches!(broken, Some(Err(ExternalError::Malformed { .. }))));
    assert_eq!(of("json/protobuf", Some("other"), "{}"), None);
    assert_eq!(of("json/plain", message, "{}"), None);
}

/// What a killed writer left closed is as open as the directory again, and the names of keys can be read by who shares it.
#[tokio::test]
async fn files_of_a_shared_directory_are_as_open_as_it_is() {
    let home = tempfile::tempdir().unwrap();
    let (directory, key) = (home.path().join("payloads"), keys(home.path(), "one", "1").await);
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o2770)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let close = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    for _ in 0..2 {
        with(&directory, key.clone()).seal(start(vec![text(20_000)])).await.unwrap();
        let noted = directory.join("keys.json");
        let folder = entry(&directory.join("sha256"));
        let kept = entry(&folder);
        assert_eq!((mode(&noted), mode(&kept), mode(&folder)), (0o640, 0o640, 0o2770));
        close(&noted);
        close(&kept);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    }
}

/// What could not be read again is refused before it is written.
#[test]
fn a_file_that_is_too_large_to_be_read_is_not_written() {
    let home = tempfile::tempdir().unwrap();
    let files = PayloadFiles::new(home.path().to_owned());
    let why = files.put(&vec![0; STORED_MAX + 64 * 1024 + 1]).unwrap_err();
    assert!(matches!(why, ExternalError::TooLarge { limit, .. } if limit == STORED_MAX + 64 * 1024), "{why}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}
