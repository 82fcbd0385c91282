//! The gauge by numbers, and the pace as callers see it.

use super::*;

const START: Timestamp = Timestamp(1_000_000_000);

fn gauge(per_minute: Option<u32>) -> Gauge {
    Gauge::new(PaceConfig { per_minute, ..PaceConfig::default() })
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn a_minute_takes_so_many_requests_and_a_sixth_of_them_at_once() {
    let mut gauge = gauge(Some(60));
    let at_once = (0..100).take_while(|_| gauge.admit("a", START).is_ok()).count();
    assert_eq!((at_once, gauge.admit("a", START).unwrap_err().as_millis()), (10, 60_000 / 51));
    // Whoever waits as told gets through; a minute later sixty have.
    let mut now = START;
    let mut admitted = at_once;
    while now < START.plus(secs(60)) {
        match gauge.admit("a", now) {
            Ok(()) => admitted += 1,
            Err(wait) => now = now.plus(wait),
        }
    }
    assert_eq!(admitted, 60);
}

#[test]
fn each_of_many_that_wait_gets_a_moment_of_its_own() {
    let mut gauge = gauge(Some(6)); // one in ten seconds
    assert_eq!(gauge.admit("0", START), Ok(()));
    for n in 1..6 {
        assert_eq!(gauge.admit(&n.to_string(), START), Err(secs(10 * n)), "{n}");
    }
    assert_eq!(gauge.admit("3", START.plus(secs(1))), Err(secs(29)), "who comes early keeps it");
    // The first is a little late; who is new goes behind all that wait.
    assert_eq!(gauge.admit("new", START.plus(secs(10))), Err(secs(50)));
    assert_eq!(gauge.admit("1", START.plus(secs(11))), Ok(()));
    // The second comes a second too soon for that, and the third still gets its own moment, or the next.
    assert_eq!(gauge.admit("2", START.plus(secs(20))), Err(secs(1)));
    assert_eq!(gauge.admit("2", START.plus(secs(21))), Ok(()));
    assert_eq!(gauge.admit("3", START.plus(secs(31))), Ok(()));
    // Nobody else comes: who is new need not wait for ever.
    assert_eq!(gauge.admit("newer", START.plus(secs(100))), Ok(()));
}

#[test]
fn a_quiet_moves_everybody_behind_it_one_after_the_other() {
    let mut gauge = gauge(Some(6));
    assert_eq!(gauge.admit("0", START), Ok(()));
    for n in 1..4 {
        assert!(gauge.admit(&n.to_string(), START).is_err());
    }
    gauge.quiet(START, secs(100));
    for n in 1..4 {
        let (at, wanted) = (START.plus(secs(10 * n)), START.plus(secs(90 + 10 * n)));
        assert_eq!(gauge.admit(&n.to_string(), at), Err(wanted.since(at)), "{n}");
        assert_eq!(gauge.admit(&n.to_string(), at.plus(secs(1))), Err(wanted.since(at.plus(secs(1)))), "{n}");
    }
}

/// Callers that come when they like, and come back a little late: no minute has more requests than it may, all of them go
/// at about that pace, and none is sent away again and again.
#[test]
fn a_crowd_is_let_through_at_the_pace_and_nobody_is_sent_away_for_ever() {
    for (per_minute, callers, seed) in [(6, 60, 1), (6, 200, 2), (30, 200, 3), (20, 300, 4), (1, 20, 5)] {
        let mut gauge = gauge(Some(per_minute));
        let mut random = seed;
        let mut next = |below: u64| {
            random = (random * 6_364_136_223_846_793_005_u128 + 1_442_695_040_888_963_407) % (1 << 64);
            (random >> 33) as u64 % below
        };
        let mut coming: std::collections::BTreeSet<(Timestamp, u64, u32)> =
            (0..callers).map(|who| (START.plus(secs(next(30))), who, 1)).collect();
        let (mut gone, mut tries_max, mut rounds) = (Vec::new(), 0, 0);
        while let Some((now, who, tries)) = coming.pop_first() {
            rounds += 1;
            assert!(rounds < 100_000);
            match gauge.admit(&who.to_string(), now) {
                Ok(()) => {
                    gone.push(now);
                    tries_max = tries_max.max(tries);
                }
                Err(wait) => {
                    // A short wait is no new attempt, and an hour is the longest that anybody is told to wait.
                    let is_try = wait > SHORT && wait < RETRY_AFTER_MAX;
                    let late = Duration::from_millis(if wait > SHORT { next(500) } else { 0 });
                    coming.insert((now.plus(wait + late), who, tries + u32::from(is_try)));
                }
            }
        }
        assert_eq!(gone.len() as u64, callers);
        let crowded = gone.windows(per_minute as usize + 1).find(|some| some[some.len() - 1].since(some[0]) < secs(60));
        assert_eq!(crowded, None, "{per_minute} a minute");
        let (took, least) = (gone[gone.len() - 1].since(START), gauge.interval * callers as u32);
        assert!(took < least * 11 / 10 + secs(60), "{took:?} of {least:?}");
        assert!(tries_max <= 4, "{per_minute} a minute, {callers} callers: {tries_max} tries");
    }
}

#[test]
fn without_a_limit_nobody_waits() {
    let mut gauge = gauge(None);
    assert!((0..1_000).all(|_| gauge.admit("a", START).is_ok()));
}

#[test]
fn a_refusal_quiets_every_run() {
    let mut gauge = gauge(None);
    gauge.refused(START, Some(429), Some(secs(17)));
    assert_eq!(gauge.admit("a", START.plus(secs(2))), Err(secs(15)));
    // A shorter one does not shorten it.
    gauge.refused(START, Some(529), Some(secs(1)));
    assert_eq!(gauge.admit("a", START), Err(secs(17)));
    assert_eq!(gauge.admit("a", START.plus(secs(17))), Ok(()));
    gauge.refused(START, Some(429), Some(secs(1_000_000)));
    assert_eq!(gauge.admit("a", START), Err(RETRY_AFTER_MAX));
}

#[test]
fn refusals_without_a_time_quiet_for_twice_as_long_each_time() {
    let mut gauge = gauge(None);
    let mut waits = Vec::new();
    for _ in 0..8 {
        gauge.quiet_until = START;
        gauge.refused(START, Some(429), None);
        waits.push(gauge.admit("a", START).unwrap_err().as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    gauge.answered();
    gauge.quiet_until = START;
    gauge.refused(START, Some(500), None);
    assert_eq!(gauge.admit("a", START), Ok(()), "a broken server says nothing about the pace");
}

#[test]
fn one_refusal_of_many_requests_counts_once() {
    let mut gauge = gauge(None);
    (0..8).for_each(|_| gauge.refused(START, Some(529), None));
    assert_eq!(gauge.admit("a", START), Err(QUIET_FIRST));
}

#[test]
fn those_who_are_sent_away_come_back_one_after_the_other() {
    let mut gauge = Gauge::new(PaceConfig { concurrency: 4, per_minute: None });
    let waits: Vec<u128> = (0..4).map(|_| gauge.queue(START).as_millis()).collect();
    assert_eq!(waits, [2_500, 5_000, 7_500, 10_000]);
    // Answers turn out to be quick.
    (0..50).for_each(|_| gauge.held(Duration::from_millis(400)));
    let later = START.plus(secs(10));
    assert_eq!(gauge.queue(later), SHORT);
    let waits = (0..100).map(|_| gauge.queue(later));
    assert!(waits.is_sorted());
    let wait = gauge.queue(later);
    assert!(wait > secs(9) && wait < secs(12), "{wait:?}");
}

#[test]
fn what_is_left_slows_down_before_the_refusal() {
    let learn = |counts, remaining, limit, reset| {
        let mut gauge = gauge(None);
        gauge.learn(START, &Window { counts, remaining, limit, reset: secs(reset) });
        gauge.admit("a", START).err()
    };
    assert_eq!(learn(Counted::Requests, 0, Some(100), 30), Some(secs(30)));
    assert_eq!(learn(Counted::Requests, 4, Some(100), 30), Some(secs(6)));
    assert_eq!(learn(Counted::Requests, 50, Some(100), 30), None);
    assert_eq!(learn(Counted::Requests, 2, None, 30), Some(secs(10)));
    assert_eq!(learn(Counted::Tokens, 10, Some(1_000), 300), Some(secs(10)));
    assert_eq!(learn(Counted::Tokens, 10, None, 300), None);
    assert_eq!(learn(Counted::Tokens, 0, None, 300), Some(secs(300)));
}

#[tokio::test]
async fn a_long_wait_is_given_back_with_its_length() {
    let pace = Pace::new(PaceConfig::default());
    let refused = ModelError {
        class: ErrorClass::Retry { after: Some(secs(100)) },
        status: Some(429),
        code: None,
        message: String::new(),
    };
    pace.heard(&[], Err(&refused));
    let error = pace.admit("a").await.unwrap_err();
    let ErrorClass::Retry { after: Some(after) } = error.class else { panic!("{error:?}") };
    assert!(after > secs(90) && after <= secs(100), "{after:?}");
    assert_eq!(error.code.as_deref(), Some(code::PACED));
}

#[tokio::test]
async fn so_many_are_under_way_at_a_time() {
    let pace = Pace::new(PaceConfig { concurrency: 1, per_minute: None });
    let slot = pace.admit("a").await.unwrap();
    let error = pace.admit("a").await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Retry { after: Some(ANSWER_FIRST) });
    drop(slot);
    assert!(pace.admit("a").await.is_ok());
}

/// The engine's timer holds a long wait for a moment, and the activity gives it on as it is.
#[tokio::test]
async fn a_wait_for_a_moment_of_its_own_says_so() {
    let pace = Pace::new(PaceConfig { concurrency: 8, per_minute: Some(6) });
    drop(pace.admit("0").await.unwrap());
    for n in 1..4 {
        let error = pace.admit(&n.to_string()).await.unwrap_err();
        let ErrorClass::Retry { after: Some(after) } = error.class else { panic!("{error:?}") };
        assert!(after > secs(10 * n - 5) && after <= secs(10 * n), "{after:?}");
        assert_eq!(error.code.as_deref(), Some(code::TURN));
    }
}
