//! Roles: the rights of tokens that do not state any rights themselves.

use std::collections::BTreeMap;

use femtobarn_server::auth::RoleConfig;
use serde_json::json;

use super::signing::Signer;
use super::{BOTH, Case, NOTHING, READS, REFUSED};
use crate::tokens::ISSUER;

/// The roles of the server: of a group, of a subject, and one for another path.
pub(super) fn settings() -> BTreeMap<String, RoleConfig> {
    let texts = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect();
    let role = |rights: &[&str], subjects: &[&str], groups: &[&str]| RoleConfig {
        rights: texts(rights),
        issuer: ISSUER.to_owned(),
        subjects: texts(subjects),
        groups: texts(groups),
        ..RoleConfig::default()
    };
    let reader = role(&["storage.read:/lhc.fed"], &[], &["/lhc", "/lhc/shift"]);
    let writer = role(&["storage.read:/lhc.fed", "storage.modify:/"], &["writer"], &[]);
    let elsewhere = role(&["storage.read:/store"], &["alice"], &["/other"]);
    let named = [("reader", reader), ("writer", writer), ("elsewhere", elsewhere)];
    named.into_iter().map(|(name, role)| (name.to_owned(), role)).collect()
}

pub(super) fn cases(signer: &Signer) -> Vec<Case> {
    let lhc = json!(["/lhc"]);
    let mut cases = vec![
        (json!({"scope": null, "wlcg.groups": lhc}), READS),
        (json!({"scope": "", "wlcg.groups": lhc}), READS),
        (json!({"scope": "openid compute.read wlcg.groups", "wlcg.groups": lhc}), READS),
        (json!({"scope": null, "wlcg.groups": ["/other", "/lhc/shift"]}), READS),
        (json!({"scope": null, "sub": "bob", "wlcg.groups": lhc}), READS),
        (json!({"scope": null, "sub": "writer"}), BOTH),
        (json!({"scope": null, "sub": "writer", "wlcg.groups": lhc}), BOTH),
        (json!({"scope": "storage.read:/lhc.fed", "sub": "writer"}), READS),
        (json!({"scope": null, "wlcg.groups": ["/other"]}), NOTHING),
        (json!({"scope": null, "groups": lhc}), NOTHING),
        (json!({"scope": null, "wlcg.groups": lhc, "exp": signer.now - 600}), REFUSED),
        (json!({"scope": "storage.read", "wlcg.groups": lhc}), REFUSED),
    ];
    // The rights that a token grants bound those of its client, even if it grants none here.
    for scope in [
        "storage.read:/store",
        "storage.poll:/lhc.fed",
        "storage.create:/lhc.fed",
        "storage.read:/../lhc.fed",
        "femtobarn.promote:/lhc.fed",
        "femtobarn.tag:/store",
    ] {
        for sub in ["alice", "writer"] {
            let changes = json!({"scope": scope, "sub": sub, "wlcg.groups": lhc});
            cases.push((changes, NOTHING));
        }
    }
    for sub in ["Writer", "writer ", " writer", "writers", "/lhc", "reader"] {
        cases.push((json!({"scope": null, "sub": sub}), NOTHING));
    }
    for groups in [
        json!([]),
        json!(["/lhc/production"]),
        json!(["/LHC"]),
        json!(["lhc"]),
        json!(["/lhc/"]),
        json!(["/lh"]),
        json!(["writer"]),
        json!("/lhc"),
        json!([["/lhc"]]),
        json!(["/lhc", 7]),
        json!({"/lhc": true}),
        json!(null),
    ] {
        cases.push((json!({"scope": null, "wlcg.groups": groups}), NOTHING));
    }
    let named = |(changes, verdict): (serde_json::Value, _)| {
        Case::new(format!("roles {changes}"), signer.changed(&changes), verdict)
    };
    cases.into_iter().map(named).collect()
}
