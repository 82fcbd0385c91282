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
    let at_once = (0..100).take_while(|_| gauge.admit(START).is_ok()).count();
    assert_eq!((at_once, gauge.admit(START).unwrap_err().as_millis()), (10, 60_000 / 51));
    // Whoever waits as told gets through; a minute later sixty have.
    let mut now = START;
    let mut admitted = at_once;
    while now < START.plus(secs(60)) {
        match gauge.admit(now) {
            Ok(()) => admitted += 1,
            Err(wait) => now = now.plus(wait),
        }
    }
    assert_eq!(admitted, 60);
}

#[test]
fn without_a_limit_nobody_waits() {
    let mut gauge = gauge(None);
    assert!((0..1_000).all(|_| gauge.admit(START).is_ok()));
}

#[test]
fn a_refusal_quiets_every_run() {
    let mut gauge = gauge(None);
    gauge.refused(START, Some(429), Some(secs(17)));
    assert_eq!(gauge.admit(START.plus(secs(2))), Err(secs(15)));
    // A shorter one does not shorten it.
    gauge.refused(START, Some(529), Some(secs(1)));
    assert_eq!(gauge.admit(START), Err(secs(17)));
    assert_eq!(gauge.admit(START.plus(secs(17))), Ok(()));
    gauge.refused(START, Some(429), Some(secs(1_000_000)));
    assert_eq!(gauge.admit(START), Err(RETRY_AFTER_MAX));
}

#[test]
fn refusals_without_a_time_quiet_for_twice_as_long_each_time() {
    let mut gauge = gauge(None);
    let mut waits = Vec::new();
    for _ in 0..8 {
        gauge.quiet_until = START;
        gauge.refused(START, Some(429), None);
        waits.push(gauge.admit(START).unwrap_err().as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    gauge.answered();
    gauge.quiet_until = START;
    gauge.refused(START, Some(500), None);
    assert_eq!(gauge.admit(START), Ok(()), "a broken server says nothing about the pace");
}

#[test]
fn one_refusal_of_many_requests_counts_once() {
    let mut gauge = gauge(None);
    (0..8).for_each(|_| gauge.refused(START, Some(529), None));
    assert_eq!(gauge.admit(START), Err(QUIET_FIRST));
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
        gauge.admit(START).err()
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
    let error = pace.admit().await.unwrap_err();
    let ErrorClass::Retry { after: Some(after) } = error.class else { panic!("{error:?}") };
    assert!(after > secs(90) && after <= secs(100), "{after:?}");
    assert_eq!(error.code.as_deref(), Some(code::PACED));
}

#[tokio::test]
async fn so_many_are_under_way_at_a_time() {
    let pace = Pace::new(PaceConfig { concurrency: 1, per_minute: None });
    let slot = pace.admit().await.unwrap();
    let error = pace.admit().await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Retry { after: Some(ANSWER_FIRST) });
    drop(slot);
    assert!(pace.admit().await.is_ok());
}
