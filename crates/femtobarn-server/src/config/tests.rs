//! Checks of the defaults, the examples in their comments, and refusals.

use super::*;
use crate::logical::placement::Opening;
use crate::physical::{Opaque, StoragePath};

#[test]
fn the_documented_defaults_are_the_defaults() {
    assert_eq!(Config::from_toml(DEFAULTS), Ok(Config::default()));
    assert_eq!(Config::from_toml(""), Ok(Config::default()));
}

/// Examples in comments are indented by three blanks.
#[test]
fn the_examples_in_comments_are_valid_settings() {
    let with_examples: String = DEFAULTS
        .lines()
        .map(|line| line.strip_prefix("#   ").unwrap_or(line).to_owned() + "\n")
        .collect();
    // An array of tables may follow single values only in its own table.
    let config: Config = toml::from_str(&with_examples).expect("examples are settings");
    assert_eq!(config.exports.len(), 1);
    assert_eq!(config.auth.issuers.len(), 1);
    let throttle = config.exports[0].throttle.as_ref().expect("the export is throttled");
    assert_eq!((throttle.bytes_per_second, throttle.disks.len()), (22_000_000, 2));
    let faults: Vec<_> = config.exports[0].faults.iter().map(|fault| fault.parse()).collect();
    assert!(
        faults.len() == 2 && faults.iter().all(Result::<crate::physical::InjectedFault, _>::is_ok)
    );
    let path = StoragePath::new(b"/lhc.fed/raw/x").expect("a path");
    let placement = config.placement().expect("the placement is valid");
    let elsewhere = placement.redirect_target(
        &path,
        Opaque::default(),
        Opening { sessions: 1, is_writing: false },
    );
    assert_eq!(elsewhere.map(|server| server.host).as_deref(), Some("disk1.example"));
    assert!(config.check().is_err_and(|what| what.contains("TLS")));
}

#[test]
fn invalid_settings_of_rights_and_shares_are_refused_with_the_reason() {
    let tls = "tls.certificate = 'a'\ntls.key = 'b'\n";
    let role = "roles.a = { rights = ['storage.read:/'], certificates = ['CN=ann'] }\n";
    let refused = |text: &str| Config::from_toml(text).err().unwrap_or_default();
    for (wrong, why) in [
        ("tls.clients = 'c'".to_owned(), "tls.clients needs tls.certificate"),
        (format!("{tls}tls.revoked = 'c'"), "needs tls.clients"),
        (format!("{tls}{role}"), "need tls.clients"),
        (format!("{tls}{role}tls.client = 'c'"), "unknown field `client`"),
        ("limits.machine_percent = 0".to_owned(), "must be 1 to 100"),
        ("limits.machine_percent = 101".to_owned(), "must be 1 to 100"),
        ("roles.a = { groups = ['/x'], rights = ['storage.read:/'] }".to_owned(), "auth.issuer"),
    ] {
        assert!(refused(&wrong).contains(why), "{wrong}: {}", refused(&wrong));
    }
    assert_eq!(refused(&format!("{tls}{role}tls.clients = 'c'\ntls.revoked = 'd'")), "");
}

#[test]
fn metrics_are_closed_by_default_if_anonymous_clients_have_no_rights() {
    let is_open = |text| Config::from_toml(text).unwrap().metrics_readers().is_open;
    assert!(is_open(""));
    assert!(!is_open("[auth]\nanonymous = 'nothing'"));
    assert!(is_open("[auth]\nanonymous = 'nothing'\n[http]\nmetrics = 'open'"));
    assert!(!is_open("[http]\nmetrics = 'closed'"));
}

#[test]
fn a_redirector_needs_servers_with_one_path() {
    let redirector = |to: &str| {
        let config = Config::from_toml(&format!("[redirect]\nto = [{to}]")).unwrap();
        config.redirector().map(|it| it.map(|it| (it.name(), it.servers().count())))
    };
    assert_eq!(redirector(""), Ok(None));
    let two = "'root://a:1//store/', 'roots://b//store'";
    assert_eq!(redirector(two), Ok(Some(("/store".to_owned(), 2))));
    assert_eq!(redirector("'root://[::1]:7//'"), Ok(Some(("/".to_owned(), 1))));
    for (to, said) in [
        ("'a:1094'", "a:1094: not a URL"),
        ("'root://a//x/../y'", "invalid path"),
        ("'root://a//x', 'root://b//y'", "root://b:1094//y must have the path of root://a:1094//x"),
        ("'root://a//x', 'root://A:7//x'", "each server needs a name or address of its own"),
    ] {
        let error = redirector(to).expect_err(to);
        assert!(error.contains(said), "{to}: {error}");
    }
}

#[test]
fn servers_near_clients_are_among_those_of_a_redirector() {
    let redirector = |near: &str| {
        let near = format!("near = [{{ clients = ['10.0.0.0/8'], servers = ['{near}'] }}]");
        let to = "to = ['root://a//x', 'root://[fd00::1]:7//x']";
        let config = Config::from_toml(&format!("[redirect]\n{to}\n{near}")).unwrap();
        config.redirector().map(|it| it.is_some())
    };
    for host in ["A", "fd00::1"] {
        assert_eq!(redirector(host), Ok(true), "{host}");
    }
    for other in ["b", "a:1094"] {
        let error = redirector(other).expect_err(other);
        assert!(error.contains(&format!("redirect.near: {other} is not among")), "{error}");
    }
}

#[test]
fn other_machines_are_served_over_tls_or_if_tls_is_off() {
    let certified = "tls = { certificate = 'a', key = 'b' }";
    let listening = |text: &str| {
        let config = Config::from_toml(text).unwrap();
        let address = config.listen_address().parse().expect("an address");
        config.check_address(address).map(|()| address.to_string())
    };
    let own = Ok("127.0.0.1".to_owned());
    for (text, at) in [
        ("", own.clone()),
        ("address = '::1'", Ok("::1".to_owned())),
        ("address = '::ffff:127.0.0.1'", Ok("::ffff:127.0.0.1".to_owned())),
        ("tls.off = true", Ok("0.0.0.0".to_owned())),
        (certified, Ok("0.0.0.0".to_owned())),
        (&format!("address = '10.0.0.1'\n{certified}"), Ok("10.0.0.1".to_owned())),
        ("address = '::'\ntls.off = true", Ok("::".to_owned())),
        ("address = '127.0.0.1'\nsite = { name = 'a', url = 'root://a:1' }", own),
    ] {
        assert_eq!(listening(text), at, "{text}");
    }
    for (text, said) in [
        ("address = '0.0.0.0'", "other machines reach address 0.0.0.0"),
        ("address = '::'", "other machines reach address ::"),
        ("address = '192.168.1.7'", "tls.off = true"),
        ("site = { name = 'a', url = 'root://a:1' }", "site.url sends clients of other machines"),
        ("cluster.cmsd = '/olbd.admin'", "cluster.cmsd sends clients of other machines"),
    ] {
        let error = listening(text).expect_err(text);
        assert!(error.contains(said), "{text}: {error}");
    }
}

fn throttled(setting: &str) -> String {
    let all = format!("bytes_per_second = 1, seeks_per_second = 1, {setting}");
    format!("[[export]]\nfolder = 'x'\nthrottle = {{ {all} }}")
}

#[test]
fn an_invalid_setting_is_refused_with_its_name_or_value() {
    for (text, said) in [
        ("prot = 1", "unknown field `prot`"),
        ("port = 70000", "line 1"),
        ("[http]\nmetrics_from = ['tau']", "invalid address \"tau\""),
        ("[copy]\nhosts = ['https://x']", "invalid server \"https://x\""),
        ("[auth]\nanonymous = 'writes'", "unknown variant `writes`"),
        ("[tls]\nkey = 'a'", "give both or none"),
        ("[tls]\nrequired = true", "tls.required needs"),
        ("tls = { certificate = 'a', key = 'b', off = true }", "remove one of them"),
        ("[[export]]\nfolder = 'x'\nname = 'x'", "write \"/x\""),
        ("[redirect]\nto = ['root://a//x']\n[[export]]\nfolder = 'x'", "serves no folders"),
        ("[redirect]\nto = ['root://a//x']\nfollowers = ['a:1']", "combined with followers"),
        ("[redirect]\nto = ['root://a//x']\nneighbours = ['a:1']", "combined with followers"),
        ("[[redirect.near]]\nclients = ['x']\nservers = ['a']", "invalid address \"x\""),
        (
            "[redirect]\nto = ['root://a//x']\nreplica = [{ path = '/x', servers = ['a:1'] }]",
            "combined with followers",
        ),
        (&throttled("disks = ['a/b']"), "invalid folder name \"a/b\""),
        (&throttled("write_behind_seconds = -1"), "write_behind_seconds: invalid time -1"),
    ] {
        let error = Config::from_toml(text).expect_err(text);
        assert!(error.contains(said), "{text}: {error}");
    }
}
