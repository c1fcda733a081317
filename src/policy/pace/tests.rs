use proptest::prelude::*;

use super::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Send as soon as it may be, from `now` on.
fn send(pace: &mut Pace, now: &mut Duration) -> Ticket {
    loop {
        match pace.take(*now) {
            Ok(ticket) => return ticket,
            Err(at) => *now = at,
        }
    }
}

/// A pace that has learned a limit of so many a second with a burst of `burst`, and the time.
fn learned(rate: f64, burst: f64, seconds: u64) -> (Pace, Duration) {
    let (mut pace, mut now, mut level, mut filled) = (Pace::default(), Duration::ZERO, burst, Duration::ZERO);
    while now < Duration::from_secs(seconds) {
        let ticket = send(&mut pace, &mut now);
        level = (level + rate * (now - filled).as_secs_f64()).min(burst);
        filled = now;
        let fits = level >= 1.0;
        level -= f64::from(u8::from(fits));
        pace.learn(now, ticket, if fits { Signal::Accepted } else { Signal::Limited });
    }
    (pace, now)
}

fn fail(pace: &mut Pace, now: Duration, times: u32) {
    for _ in 0..times {
        let ticket = pace.take(now).unwrap();
        pace.learn(now, ticket, Signal::Failed);
    }
}

#[test]
fn nothing_is_held_back_or_counted_before_the_first_sign() {
    let mut pace = Pace::default();
    for n in 0..1000 {
        let ticket = pace.take(ms(n / 10)).unwrap();
        pace.learn(ms(n), ticket, if n % 7 == 0 { Signal::Nothing } else { Signal::Accepted });
    }
    assert_eq!(pace, Pace::default());
    assert!(pace.is_free() && pace.rate().is_none());
}

#[test]
fn a_limit_is_found_and_sends_are_spaced_by_it() {
    for (rate, burst) in [(2.0, 5.0), (20.0, 20.0), (100.0, 100.0), (20.0, 600.0)] {
        let (mut pace, mut now) = learned(rate, burst, 90);
        let found = pace.rate().unwrap();
        assert!((found / rate - 1.0).abs() < 0.25, "{found} for {rate}");
        let start = now;
        for _ in 0..20 {
            send(&mut pace, &mut now);
        }
        let took = (now - start).as_secs_f64() * rate;
        assert!((15.0..25.0).contains(&took), "20 sends in {took} intervals of {rate}/s");
    }
}

/// What was on its way when the first rejection was learned is the same sign.
#[test]
fn many_rejections_of_one_instant_are_one_sign() {
    let mut one = Pace::default();
    let mut many = Pace::default();
    let tickets: Vec<_> = (0..180).map(|_| many.take(ms(5)).unwrap()).collect();
    let ticket = one.take(ms(5)).unwrap();
    one.learn(ms(9), ticket, Signal::Limited);
    tickets.into_iter().for_each(|ticket| many.learn(ms(9), ticket, Signal::Limited));
    assert_eq!(one, many);
}

#[test]
fn a_gap_is_not_followed_by_a_burst() {
    let (mut pace, mut now) = learned(20.0, 20.0, 60);
    now += Duration::from_secs(30);
    let start = now;
    let times: Vec<_> = (0..40).map(|_| (send(&mut pace, &mut now), now - start).1).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] > ms(20)), "{times:?}");
    assert!(times[39] < ms(1900), "what the bucket saved is not taken: {times:?}");
}

/// A waker that comes late is made up for, two at most in a row; one that comes much later is not.
#[test]
fn at_most_two_sends_go_together() {
    let (mut pace, mut now) = learned(20.0, 20.0, 60);
    for late in [3, 20, 60, 400] {
        send(&mut pace, &mut now);
        let Err(at) = pace.take(now) else { panic!("two at once") };
        now = at + ms(late);
        let together = (0..5).take_while(|_| pace.take(now).is_ok()).count();
        assert!(together <= 2, "{together} sends {late} ms late");
    }
    let (mut pace, mut now) = learned(1000.0, 1000.0, 60);
    send(&mut pace, &mut now);
    let together = (0..50).take_while(|_| pace.take(now + ms(5)).is_ok()).count();
    assert!((4..=9).contains(&together), "{together} sends in 5 ms at 1000/s");
}

#[test]
fn a_demand_below_the_limit_does_not_raise_it_and_in_time_forgets_it() {
    let (mut pace, mut now) = learned(20.0, 20.0, 60);
    let before = pace.rate().unwrap();
    for _ in 0..200 {
        now += ms(500);
        pace.take(now).unwrap();
        assert!(pace.rate().unwrap() <= before.max(20.5), "{:?}", pace.rate());
    }
    for _ in 0..600 {
        now += ms(1000);
        pace.take(now).unwrap();
    }
    assert!(pace.is_free());
}

#[test]
fn a_clock_that_jumps_ahead_does_not_free_a_herd() {
    let (mut pace, now) = learned(20.0, 20.0, 60);
    pace.take(now + Duration::from_secs(7200)).unwrap();
    assert!(!pace.is_free());
}

#[test]
fn a_clock_that_is_set_back_is_not_waited_for() {
    let (mut pace, now) = learned(20.0, 20.0, 60);
    let mut earlier = now - Duration::from_secs(50);
    let start = earlier;
    for _ in 0..10 {
        send(&mut pace, &mut earlier);
    }
    assert!(earlier - start < Duration::from_secs(1), "{:?}", earlier - start);
}

#[test]
fn a_row_of_failures_lets_single_probes_through() {
    let mut pace = Pace::default();
    fail(&mut pace, ms(0), 5);
    assert!(pace.is_probing());
    let (mut now, mut times) = (ms(0), Vec::new());
    while now < Duration::from_secs(60) {
        let ticket = send(&mut pace, &mut now);
        times.push(now);
        pace.learn(now + ms(20), ticket, Signal::Failed);
    }
    assert_eq!(times[0], ms(250));
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| (ms(250)..=ms(2000)).contains(gap)), "{gaps:?}");
    assert!(gaps.windows(2).all(|pair| pair[0] <= pair[1]) && times.len() < 45, "{gaps:?}");
}

#[test]
fn a_good_head_ends_trouble_and_the_waiting_go_bit_by_bit() {
    let mut pace = Pace::default();
    let early = pace.take(ms(0)).unwrap();
    fail(&mut pace, ms(100), 5);
    pace.learn(ms(200), early, Signal::Accepted);
    assert!(pace.is_probing(), "a send from before the trouble ended it");
    let mut now = ms(200);
    let probe = send(&mut pace, &mut now);
    pace.learn(now, probe, Signal::Accepted);
    let start = now;
    let times: Vec<_> = (0..200).map(|_| (send(&mut pace, &mut now), now - start).1).collect();
    let within = |time| times.iter().filter(|t| **t < time).count();
    assert!(within(ms(100)) <= 4 && within(ms(1000)) == 200, "{times:?}");
}

#[test]
fn the_rate_known_before_trouble_holds_after_it() {
    let (mut pace, now) = learned(20.0, 20.0, 60);
    let before = pace.rate();
    let mut now = now + ms(1000);
    while !pace.is_probing() {
        let ticket = send(&mut pace, &mut now);
        pace.learn(now, ticket, Signal::Failed);
    }
    let probe = send(&mut pace, &mut now);
    pace.learn(now, probe, Signal::Accepted);
    assert!(!pace.is_probing() && pace.rate().unwrap() > before.unwrap() * 0.9, "{before:?} {:?}", pace.rate());
}

#[test]
fn a_probe_of_which_nothing_is_learned_makes_way() {
    let mut pace = Pace::default();
    fail(&mut pace, ms(0), 5);
    let mut now = ms(0);
    let probe = send(&mut pace, &mut now);
    assert!(pace.take(now).is_err());
    pace.learn(now, probe, Signal::Nothing);
    pace.take(now).unwrap();
}

/// One failure in twenty, told in 20 ms, while good heads take 10 s.
#[test]
fn random_failures_are_no_trouble_even_where_good_heads_are_slow() {
    let (mut pace, mut pending) = (Pace::default(), std::collections::VecDeque::new());
    for n in 0..10_000u64 {
        let now = ms(n * 50);
        let ticket = pace.take(now).unwrap();
        match n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 {
            dice if dice % 20 == 0 => pace.learn(now + ms(20), ticket, Signal::Failed),
            _ => pending.push_back((now + ms(10_000), ticket)),
        }
        while pending.front().is_some_and(|(at, _)| *at <= now) {
            let (_, ticket) = pending.pop_front().unwrap();
            pace.learn(now, ticket, Signal::Accepted);
        }
    }
}

#[test]
fn a_pace_is_small_as_json_and_comes_back_the_same() {
    let (mut pace, now) = learned(33.3, 7.0, 100);
    let mut now = now + Duration::from_secs(1_800_000_000);
    while !pace.is_probing() {
        let ticket = send(&mut pace, &mut now);
        pace.learn(now, ticket, Signal::Failed);
    }
    let json = serde_json::to_string(&pace).unwrap();
    assert!(json.len() < 400, "{} bytes: {json}", json.len());
    let mut back: Pace = serde_json::from_str(&json).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap().len(), json.len());
    assert_eq!(back.take(now + ms(5000)), pace.take(now + ms(5000)));
    assert_eq!(serde_json::from_str::<Pace>("{}").unwrap(), Pace::default());
}

/// One step of an arbitrary life: the clock goes on or jumps, a send wants to go, or one of those before is told.
#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    Jump(u64),
    Take,
    Learn(usize, Signal),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let signal = prop_oneof![
        4 => Just(Signal::Accepted),
        2 => Just(Signal::Limited),
        2 => Just(Signal::Failed),
        1 => Just(Signal::Nothing),
    ];
    let step = prop_oneof![
        6 => (0u64..100_000).prop_map(Step::Wait),
        1 => prop_oneof![0u64..10_000_000_000, Just(0), Just(1_800_000_000_000_000)].prop_map(Step::Jump),
        6 => Just(Step::Take),
        6 => (0usize..1000, signal).prop_map(|(i, s)| Step::Learn(i, s)),
    ];
    prop::collection::vec(step, 0..400)
}

proptest! {
    #[test]
    fn no_life_stops_it(steps in steps()) {
        let (mut pace, mut now, mut tickets) = (Pace::default(), Duration::from_secs(100), Vec::new());
        for step in steps {
            match step {
                Step::Wait(us) => now += Duration::from_micros(us),
                Step::Jump(to) => now = Duration::from_micros(to),
                Step::Take => match pace.take(now) {
                    Ok(ticket) => tickets.push(ticket),
                    Err(at) => prop_assert!(at > now && at <= now + Duration::from_secs(61), "at {now:?}: {at:?}"),
                },
                Step::Learn(i, signal) if !tickets.is_empty() => pace.learn(now, tickets[i % tickets.len()], signal),
                Step::Learn(..) => {}
            }
            prop_assert!(pace.rate().is_none_or(|rate| rate.is_finite() && rate > 0.0), "{:?}", pace);
        }
        let json = serde_json::to_string(&pace).unwrap();
        prop_assert!(json.len() < 400, "{} bytes: {}", json.len(), json);
        let mut asked = 0;
        while let Err(at) = pace.take(now) {
            now = at;
            asked += 1;
            prop_assert!(asked < 4, "{:?}", pace);
        }
    }
}
