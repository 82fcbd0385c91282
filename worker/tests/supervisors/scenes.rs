//! The scenes of `fixtures/scenes`, by the binary that ships.

use std::path::Path;
use std::process::Command;

/// All scenes pass, each in all of its ways; and a scene that expects something else does not.
#[test]
fn the_scenes_pass_by_the_shipped_binary() {
    let scenes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/scenes");
    let bosun = || {
        let mut bosun = Command::new(env!("CARGO_BIN_EXE_bosun"));
        bosun.args(["test", "--keep"]).arg(env!("CARGO_TARGET_TMPDIR"));
        bosun
    };
    let all = bosun().arg(&scenes).output().unwrap();
    assert!(all.status.success(), "{}{}", String::from_utf8_lossy(&all.stdout), String::from_utf8_lossy(&all.stderr));
    let good = std::fs::read_to_string(scenes.join("plan-and-execute-step-by-step.yaml")).unwrap();
    let bad = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bad.yaml");
    std::fs::write(&bad, good.replace("takes: 5s", "takes: 6s")).unwrap();
    let failed = bosun().arg(&bad).output().unwrap();
    let told = String::from_utf8_lossy(&failed.stdout).into_owned();
    assert_eq!(failed.status.code(), Some(1), "{told}");
    for part in ["FAIL", "expect.takes", "at least 6", "5s", "bosun replay debug "] {
        assert!(told.contains(part), "{part}: {told}");
    }
}
