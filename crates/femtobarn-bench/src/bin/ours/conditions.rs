//! Look-ups in all series of a federation, in process.

use std::path::Path;

use femtobarn::Federation;
use femtobarn_bench::{Outcome, Stopwatch};
use femtobarn_conditions::{Job, JobOptions, Series};

/// Nanoseconds between two events.
const STEP: i64 = 1_000_000_000;
/// The first event.
const START: i64 = 1_767_225_600_000_000_000;

/// Looks up every series for each of `events` moments, in the order of time or at random, as Femtobarn does or in
/// a sorted array of the same intervals.
pub(crate) fn look_up(folder: &Path, way: &str, order: &str, events: u64) -> Outcome {
    let federation = Federation::open(folder)?;
    let job = Job::open(&federation, &JobOptions::default())?;
    let series = job.names()?.iter().map(|name| job.series(name)).collect::<Result<Vec<_>, _>>()?;
    let moments = moments(order, events);
    match way {
        "ours" => by_cursor(&series, &moments),
        "sorted-array" => by_sorted_array(&series, &moments),
        other => Err(format!("unknown way {other:?}: ours or sorted-array").into()),
    }
}

/// Moments spread evenly over 100 days, in order or shuffled by a multiplicative congruence.
fn moments(order: &str, events: u64) -> Vec<i64> {
    let place = |n: u64| if order == "random" { n * 7_919_777 % events } else { n };
    let span = 100 * 86_400 * STEP;
    (0..events)
        .map(|n| START + (i128::from(place(n)) * i128::from(span) / i128::from(events)) as i64)
        .collect()
}

fn by_cursor(series: &[std::sync::Arc<Series>], moments: &[i64]) -> Outcome {
    let pass = || -> Result<u64, femtobarn::Error> {
        let mut cursors: Vec<_> = series.iter().map(|series| series.cursor()).collect();
        let mut check = 0_u64;
        for &at in moments {
            for cursor in &mut cursors {
                check = check.wrapping_add(cursor.at(0, at)?.entry.map_or(0, |entry| entry + 1));
            }
        }
        Ok(check)
    };
    pass()?;
    let watch = Stopwatch::start();
    let check = pass()?;
    watch.report((series.len() * moments.len()) as u64, 0, check);
    Ok(())
}

fn by_sorted_array(series: &[std::sync::Arc<Series>], moments: &[i64]) -> Outcome {
    let arrays = series.iter().map(|series| {
        let found = series.intervals(0, i64::MIN..i64::MAX)?;
        Ok(found
            .into_iter()
            .map(|it| (it.since, it.until, it.entry.map_or(0, |entry| entry + 1)))
            .collect())
    });
    let arrays: Vec<Vec<(i64, i64, u64)>> = arrays.collect::<Result<_, femtobarn::Error>>()?;
    let pass = || {
        let mut check = 0_u64;
        for &at in moments {
            for array in &arrays {
                let place = array.partition_point(|(since, ..)| *since <= at);
                if let Some((_, until, entry)) = place.checked_sub(1).map(|place| array[place]) {
                    check = check.wrapping_add(if at < until { entry } else { 0 });
                }
            }
        }
        check
    };
    pass();
    let watch = Stopwatch::start();
    let check = pass();
    watch.report((arrays.len() * moments.len()) as u64, 0, check);
    Ok(())
}
