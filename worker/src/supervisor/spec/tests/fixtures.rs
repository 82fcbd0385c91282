//! The committed specs: the bad ones beside their texts, the good ones of every preset, and the schema.

use std::path::{Path, PathBuf};

use crate::supervisor::spec::{Preset, SpecFile, read_spec};
use crate::supervisor::spec_schema::schema_text;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/supervisors")
}

fn yaml_files(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(fixtures().join(folder)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// Each bad spec beside its expected text: PDT-28, PDT-40, PDT-41, LGS-04, CUG-16, CUG-36, CUG-40, FSS-32, FSS-36, CRW-01,
/// CRW-02, AGC-04, AGC-05, AGC-09, SUP-08, SHH-05, SHH-09 and SHN-33 say which in the files.
#[test]
fn bad_specs_are_refused_with_the_expected_text() {
    let mut wrong = Vec::new();
    let files = yaml_files("bad");
    for path in &files {
        let text = std::fs::read_to_string(path).unwrap();
        let why = match read_spec(name(path), &text) {
            Ok(_) => "nothing: the spec is good".to_owned(),
            Err(why) => why.to_string(),
        };
        let expected = std::fs::read_to_string(path.with_extension("expected")).unwrap_or_default();
        if why.trim() != expected.trim() {
            wrong.push(format!("{}\n  expected: {}\n  found:    {}", name(path), expected.trim(), why.trim()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(files.len() >= 45, "found {} bad specs", files.len());
}

/// The fixture of a preset.
pub(super) fn preset_text(preset: Preset) -> String {
    let path = fixtures().join(format!("presets/{preset}.yaml"));
    std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

fn preset_file(preset: Preset) -> SpecFile {
    read_spec(&format!("{preset}.yaml"), &preset_text(preset)).unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn there_is_a_good_spec_of_every_preset_that_resolves_twice_to_the_same_bytes() {
    for preset in Preset::ALL {
        let file = preset_file(preset);
        assert_eq!((file.spec.preset, &file.warnings), (Some(preset), &vec![]), "{preset}");
        let (one, two) = (file.resolve().unwrap(), preset_file(preset).resolve().unwrap());
        assert_eq!(one.canonical().unwrap(), two.canonical().unwrap(), "{preset}");
        assert_eq!(one.hash, two.hash);
        assert!(one.is_intact());
    }
    assert_eq!(yaml_files("presets").len(), Preset::ALL.len());
}

/// The schema that editors use is that of the types. `BOSUN_WRITE_FIXTURES=1 cargo test -p bosun-worker schema` renews it.
#[test]
fn the_committed_schema_is_that_of_the_types() {
    let path = fixtures().join("supervisor-spec.schema.json");
    if std::env::var_os("BOSUN_WRITE_FIXTURES").is_some() {
        std::fs::write(&path, schema_text()).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == schema_text(),
        "{} is stale; renew it with `BOSUN_WRITE_FIXTURES=1 cargo test -p bosun-worker schema`",
        path.display()
    );
}
