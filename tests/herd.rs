//! Two hundred agents behind one key and one limit, with an outage in the middle: the aims of the bench `herd`, as a test.
//!
//! The whole proxy with its default config, in virtual time. Nothing is told to it of the limit.

use std::sync::Arc;

use crate::support::herd::{Door, Figures, HERD, Herd, Provider, World, run};
use crate::support::*;

/// What the herd comes to in this world.
async fn figures(herd: Herd, world: &World) -> Figures {
    fastrand::seed(herd.seed);
    let provider = Provider::new(world, herd.seed);
    let door = Door::Bed(Bed::new("", provider.script()));
    Figures::of(&run(herd, Arc::new(door), &provider).await, world)
}

/// The aims of issue 4, in a world whose 429s tell nothing.
async fn keeps_its_aims(burns: bool, seed: u64) {
    let world = World::new(burns, false);
    let figures = figures(Herd { seed, ..HERD }, &world).await;
    assert_eq!(figures.lost, 0.0, "tasks lost: {figures:?}");
    assert!(figures.over_optimum <= 1.05, "time: {figures:?}");
    assert!(figures.wasted <= 0.05, "wasted requests: {figures:?}");
    assert!(figures.burst <= world.burst + 2.0, "burst: {figures:?}");
    assert!(figures.fairness >= 0.97, "fairness: {figures:?}");
}

#[tokio::test(start_paused = true)]
async fn a_herd_is_one_good_client_where_a_429_costs_nothing() {
    keeps_its_aims(false, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_herd_is_one_good_client_where_a_429_burns_a_token() {
    keeps_its_aims(true, 2).await;
}

#[tokio::test(start_paused = true)]
async fn somebody_who_waits_is_hardly_held_up_by_a_herd() {
    let alone = figures(Herd { agents: 0, companion: true, ..HERD }, &World::new(false, false)).await;
    for burns in [false, true] {
        let world = World::new(burns, false);
        let among = figures(Herd { companion: true, ..HERD }, &world).await;
        assert_eq!((among.lost, among.companion_lost), (0.0, 0.0), "tasks lost: {among:?}");
        assert!(among.companion <= 2.0 * alone.companion, "{among:?} against {alone:?}");
    }
}

#[test]
fn the_optimum_is_what_the_bucket_gives_around_the_outage() {
    let world = World::new(false, false);
    let seconds = |calls| world.optimum(calls).as_secs_f64();
    // The burst at once; the 400 of 20 s; a full bucket after the outage; and so on.
    for (calls, expected) in [(20, 0.25), (21, 0.3), (420, 25.25), (439, 25.25), (440, 25.3), (1000, 53.3)] {
        assert!((seconds(calls) - expected).abs() < 1e-3, "{calls}: {}", seconds(calls));
    }
}
