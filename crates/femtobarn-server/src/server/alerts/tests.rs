//! Alerts have the limits and texts of the rules for Prometheus, and appear if and only if the status exceeds the
//! limits.

use std::fs;

use super::*;
use crate::status::{
    CacheDiskStatus, CacheStatus, ExportStatus, FederationStatus, FollowerStatus, LockStatus,
    StoreStatus, Totals,
};

const ALERTS: [&Alert; 7] = [
    &DISK_FULL,
    &DISK_NEARLY_FULL,
    &CONNECTIONS_NEAR_LIMIT,
    &LOCK_WAITS,
    &RECALLS_STUCK,
    &CACHE_DISK_FAILED,
    &FOLLOWER_BEHIND,
];
const CONNECTIONS_MAX: usize = 20_000;

/// The rule of an alert for Prometheus, on one line.
fn rule(alert: &Alert) -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus/femtobarn.rules.yml");
    let rules = fs::read_to_string(file).unwrap();
    let begin = format!("- alert: {}\n", alert.name);
    let (_, rest) = rules.split_once(&begin).unwrap();
    let lines = rest.lines().take_while(|line| !line.trim_start().starts_with("- "));
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

#[test]
fn limits_and_words_are_those_of_the_rules_for_prometheus() {
    for alert in ALERTS {
        let rule = rule(alert);
        let severity = if alert.is_critical { "critical" } else { "warning" };
        assert!(rule.contains(&format!("severity: {severity}")), "{rule}");
        for words in [alert.description, alert.action] {
            assert!(rule.contains(words), "{rule}\nhas not: {words}");
        }
    }
    let has = |alert: &Alert, text: String| {
        let rule = rule(alert);
        assert!(rule.contains(&text), "{rule}\nhas not: {text}");
    };
    has(&DISK_FULL, format!("export_free:ratio < {} for", DISK_FULL.limit));
    has(&DISK_NEARLY_FULL, format!("export_free:ratio < {} for", DISK_NEARLY_FULL.limit));
    let connections = CONNECTIONS_NEAR_LIMIT.limit * CONNECTIONS_MAX as f64;
    has(&CONNECTIONS_NEAR_LIMIT, format!("femtobarn_connections > {connections} for"));
    has(&LOCK_WAITS, format!("for: {}m", LOCK_WAITS.limit / 60.0));
    has(&RECALLS_STUCK, format!("stalled_seconds >= {} labels", RECALLS_STUCK.limit));
    has(&CACHE_DISK_FAILED, format!("cache_failed_disks > {} labels", CACHE_DISK_FAILED.limit));
    has(&FOLLOWER_BEHIND, format!("commits_behind > {} for", FOLLOWER_BEHIND.limit));
}

fn names(status: &ServerStatus) -> Vec<&'static str> {
    alerts(status, CONNECTIONS_MAX).iter().map(|alert| alert.name).collect()
}

#[test]
fn a_server_at_its_limits_has_no_alert_and_one_beyond_them_has_all() {
    let at = |beyond: u64| {
        let export = |name: &str, free: u64| ExportStatus {
            name: name.to_owned(),
            total_bytes: 1000,
            free_bytes: free - beyond,
        };
        ServerStatus {
            exports: vec![export("/lhc.fed", 100), export("/store", 100), export("/cache", 1)],
            caches: vec![CacheStatus {
                name: "/cache".to_owned(),
                disks: vec![CacheDiskStatus {
                    why_failed: "error".repeat(beyond as usize),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            totals: Totals { open_connections: 16_000 + beyond, ..Default::default() },
            federations: vec![FederationStatus {
                name: "/lhc.fed".to_owned(),
                ..Default::default()
            }],
            waits: vec![LockStatus {
                federation: "lhc.fed".to_owned(),
                seconds: 899 + beyond,
                ..Default::default()
            }],
            stores: vec![StoreStatus {
                stalled_seconds: (7199 + beyond) as f64,
                ..Default::default()
            }],
            followers: vec![FollowerStatus { behind: 100 + beyond, ..Default::default() }],
            ..Default::default()
        }
    };
    assert_eq!(names(&at(0)), Vec::<&str>::new());
    let mut late = at(1);
    late.exports[1].free_bytes = 19;
    let mut all = ALERTS.map(|alert| alert.name).to_vec();
    let mut found = names(&late);
    assert_eq!(found.remove(0), all.remove(0), "what is critical comes first");
    assert_eq!(found, all);
    late.stores[0].stalled_seconds = 0.0;
    assert!(!names(&late).contains(&RECALLS_STUCK.name));
}

#[test]
fn summaries_have_the_number_and_the_name() {
    let export = ExportStatus { name: "/lhc.fed".to_owned(), total_bytes: 1000, free_bytes: 73 };
    let status = ServerStatus { exports: vec![export], ..Default::default() };
    let [alert] = &alerts(&status, CONNECTIONS_MAX)[..] else { panic!("there is one alert") };
    assert_eq!(alert.summary, "7 % of the disk of /lhc.fed are free");
    assert!(!alert.is_critical);
}
