//! Power cuts: the real worker under load on a file system that is cut off, on ext4 and, where its tool is there, xfs.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use bosun_tests::harness::crash::power_cut_rounds;
use bosun_tests::harness::load::Shape;
use bosun_tests::harness::log_story::{self, Told};
use bosun_tests::harness::power::{FileSystem, PowerRig, require_or_explain};
use bosun_tests::harness::process::{Program, example};
use bosun_tests::harness::{Chance, count_from_env, say};

/// How long a story may take to begin, or to come to the first cut.
const PATIENCE: Duration = Duration::from_secs(60);

/// Groups and values of every size: large values take another way through sled than small ones.
fn survives_power_cuts(file_system: FileSystem, cuts: u32) {
    let Some(mut rig) = require_or_explain(file_system) else { return };
    let name = file_system.name();
    let mut chance = Chance::from_env(&format!("power cuts on {name}"));
    let cuts = count_from_env("BOSUN_CUTS", cuts);
    let program = Program::bosun_worker().unwrap();
    let shape = Shape { clients: 16, ..Shape::default() };
    let outcome = power_cut_rounds(&program, &mut rig, cuts, &mut chance, shape).unwrap();
    say(&format!("power cuts on {name}: {}", outcome.summary()));
    outcome.assert_clean(&format!("power cuts on {name}"));
    assert!(outcome.crashes >= cuts);
}

/// G1: what was acknowledged before the power failed is there after it.
#[test]
fn a_power_cut_on_ext4_loses_nothing_acknowledged() {
    survives_power_cuts(FileSystem::Ext4, 10);
}

/// G1: the same on xfs.
#[test]
fn a_power_cut_on_xfs_loses_nothing_acknowledged() {
    survives_power_cuts(FileSystem::Xfs, 10);
}

/// G1: the same on both, fifteen times as often.
#[test]
#[ignore = "minutes: cargo full"]
fn a_hundred_and_fifty_power_cuts_lose_nothing_acknowledged() {
    FileSystem::ALL.into_iter().for_each(|file_system| survives_power_cuts(file_system, 150));
}

/// A commit behind a trim that put values beside the database: its sync names them. The first cut comes behind its answer,
/// with nothing under way: what was not synced by then nothing else can save.
const WITH_A_VALUE: u64 = 28;

/// What the log alone went through: cuts in the middle of commits of all sizes, trims, deletions and checkpoints.
/// Answers the differences found.
fn story_rounds(rig: &mut PowerRig, cuts: u32, chance: &mut Chance) -> Vec<String> {
    let mut differences = Vec::new();
    let (mut known, mut done) = (0, 0);
    for cut in 0..cuts {
        let dir = rig.dir().join("story");
        let mut command = Command::new(example("log-story").unwrap());
        let until = if cut == 0 { WITH_A_VALUE } else { u64::MAX };
        command.args([known, until].map(|steps| steps.to_string())).arg("--data").arg(&dir);
        let mut teller = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (begun, begins) = mpsc::channel();
        let listened = std::thread::spawn({
            let says = BufReader::new(teller.stdout.take().unwrap());
            let heard = move |step: &u64| {
                let _ = begun.send(*step);
            };
            move || says.lines().map_while(Result::ok).filter_map(|line| line.parse().ok()).inspect(heard).last()
        });
        // Some cuts hit the opening, most the story.
        if cut == 0 {
            while begins.recv_timeout(PATIENCE).expect("the story goes on") < WITH_A_VALUE {}
        } else {
            if chance.percent(80) {
                let _ = begins.recv_timeout(PATIENCE);
            }
            std::thread::sleep(Duration::from_millis(chance.below(300)));
        }
        // What is said before the cut has begun counts; the disk fails for the teller, so it says no more after it.
        rig.power_cut(|| {
            teller.kill().unwrap();
            teller.wait().unwrap();
        })
        .unwrap();
        let acknowledged = listened.join().unwrap().unwrap_or(known);
        let fits = log_story::open(&rig.dir().join("story")).map_err(|why| vec![why.to_string()]).and_then(|journal| {
            // The step under way may have happened or not; one that only derives changes nothing that is told.
            let tries = (acknowledged..=acknowledged + 1).map(|steps| (steps, Told::after(steps).fits(&journal)));
            let tries: Vec<(u64, Result<(), String>)> = tries.collect();
            let fits = tries.iter().rev().find(|(_, fits)| fits.is_ok()).map(|(steps, _)| *steps);
            fits.ok_or_else(|| tries.into_iter().filter_map(|(_, fits)| fits.err()).collect())
        });
        match fits {
            Ok(steps) => known = steps,
            Err(why) => {
                differences.push(format!("cut {cut} after {acknowledged} steps: {why:?}"));
                std::fs::remove_dir_all(rig.dir().join("story")).unwrap();
                (known, done) = (0, done + acknowledged);
            }
        }
    }
    say(&format!("power cuts of the log alone: {cuts} cuts, {} steps, {differences:?}", done + known));
    assert!(done + known > u64::from(cuts) * 5, "the story hardly went on");
    differences
}

/// G1, G2: the files beside the database keep the order that the log relies on, whatever is cut.
#[test]
fn a_power_cut_in_the_middle_of_trims_and_long_groups_loses_nothing() {
    for file_system in FileSystem::ALL {
        let Some(mut rig) = require_or_explain(file_system) else { continue };
        let mut chance = Chance::from_env(&format!("story on {}", file_system.name()));
        let differences = story_rounds(&mut rig, count_from_env("BOSUN_CUTS", 12), &mut chance);
        assert_eq!(differences, Vec::<String>::new(), "on {}", file_system.name());
    }
}
