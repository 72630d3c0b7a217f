//! The scopes of tokens: which words count, and which paths they lead to.

use serde_json::{Value, json};

use super::signing::Signer;
use super::{BOTH, CHANGES, Case, NOTHING, READS, REFUSED, Verdict};

/// Paths for which `storage.read:` lets a client read `/lhc.fed`, and paths for which it does not.
const LEADING_THERE: [&str; 13] = [
    "/",
    "//",
    "/.",
    "/lhc.fed",
    "/lhc.fed/",
    "//lhc.fed",
    "/./lhc.fed",
    "/lhc.fed//",
    "/lhc.fed/.",
    "/lhc%2Efed",
    "/%6c%68c.fed/",
    "/%2e/lhc.fed",
    "/%2E//lhc%2efed//",
];
const LEADING_ELSEWHERE: [&str; 31] = [
    "/lhc",
    "/lhc.fe",
    "/lhc.fedora",
    "/lhc.fed2",
    "/LHC.fed",
    "/lhc.FED",
    "/store",
    "/store/lhc.fed",
    "/lhc.fed/x",
    "/lhc.fed/databases/run7",
    "/lhc.fed.",
    "/*",
    "/lhc*",
    "/lhc?fed",
    "/~",
    "lhc.fed",
    "..",
    "/..",
    "/../lhc.fed",
    "/store/../lhc.fed",
    "/lhc.fed/..",
    "/lhc.fed/../lhc.fed",
    "/%2e%2e/lhc.fed",
    "/.%2E/lhc.fed",
    "/..%2flhc.fed",
    "/%2Flhc.fed",
    "/lhc%252Efed",
    "/lhc.fed%00",
    "/lhc.fed%",
    "/lhc.fed%zz",
    "\\lhc.fed",
];

/// Whole scopes.
const SCOPES: [(&str, Verdict); 43] = [
    ("", NOTHING),
    (" ", NOTHING),
    ("storage.read:/lhc.fed storage.modify:/lhc.fed", BOTH),
    ("storage.read:/ storage.modify:/", BOTH),
    ("storage.read:/store storage.read:/lhc.fed", READS),
    ("  storage.read:/lhc.fed  openid ", READS),
    ("storage.read:/lhc.fed storage.read:/lhc.fed", READS),
    ("storage.read:/lhc.fed storage.modify:/lhc.fed/../store", READS),
    ("storage.read:/lhc.fed storage.modify:/lhc.fe", READS),
    ("storage.read:/lhc.fed storage.modify:/lhc.fed/other", READS),
    ("storage.modify:/lhc.fed", CHANGES),
    ("storage.modify:/lhc.fed/", CHANGES),
    ("storage.modify://lhc.fed/.", CHANGES),
    ("storage.modify:/lhc%2efed", CHANGES),
    ("storage.create:/lhc.fed", NOTHING),
    ("storage.stage:/lhc.fed", NOTHING),
    ("storage.stage:/", NOTHING),
    ("storage.poll:/", NOTHING),
    ("storage.poll:/lhc.fed storage.stage:/lhc.fed storage.create:/", NOTHING),
    ("femtobarn.promote:/lhc.fed", NOTHING),
    ("femtobarn.manage:/ femtobarn.promote:/", NOTHING),
    ("openid profile offline_access wlcg.groups", NOTHING),
    ("compute.read compute.modify compute.create compute.cancel", NOTHING),
    ("wlcg.groups:/cms wlcg.capabilityset:/cms", NOTHING),
    ("storage.all:/ storage.write:/ storage.delete:/ storage.*:/ storage:/ *", NOTHING),
    ("Storage.read:/ STORAGE.READ:/ storage.Read:/", NOTHING),
    ("storage.read;/ storage.read=/ storage.read/ :/ :", NOTHING),
    ("storage.read:/lhc.fed,storage.modify:/lhc.fed", NOTHING),
    ("storage.read::/lhc.fed", NOTHING),
    ("storage.read:/lhc.fed:/", NOTHING),
    ("storage.read:root://host//lhc.fed", NOTHING),
    ("storage.read:/lhc.fed\u{2028}", NOTHING),
    ("storage.read:/lhc.fed\u{a0}x", NOTHING),
    ("\u{ff53}torage.read:/", NOTHING),
    ("storage.read:/lhc.fed?authz=x", NOTHING),
    ("storage.read:/lhc.fed#x", NOTHING),
    ("storage.read", REFUSED),
    ("storage.read:", REFUSED),
    ("storage.read:/lhc.fed storage.modify", REFUSED),
    ("storage.poll storage.read:/lhc.fed", REFUSED),
    ("storage.stage: storage.read:/lhc.fed", REFUSED),
    ("storage.read /lhc.fed", REFUSED),
    ("femtobarn.promote storage.read:/lhc.fed", REFUSED),
];

pub(super) fn cases(signer: &Signer) -> Vec<Case> {
    let paths = LEADING_THERE.iter().map(|path| (*path, READS));
    let paths = paths.chain(LEADING_ELSEWHERE.iter().map(|path| (*path, NOTHING)));
    let of_paths = paths.map(|(path, verdict)| (format!("storage.read:{path}"), verdict));
    let whole = SCOPES.iter().map(|(scope, verdict)| ((*scope).to_owned(), *verdict));
    let texts = of_paths.chain(whole).map(|(scope, verdict)| (json!(scope), verdict));
    let others: [(Value, Verdict); 5] = [
        (Value::Null, NOTHING),
        (json!(7), REFUSED),
        (json!(["storage.read:/lhc.fed"]), REFUSED),
        (json!({"storage.read": "/lhc.fed"}), REFUSED),
        (json!(format!("storage.read:/lhc.fed {}", "openid ".repeat(1000))), READS),
    ];
    texts
        .chain(others)
        .map(|(scope, verdict)| {
            let name: String = scope.to_string().chars().take(80).collect();
            Case::new(format!("scope {name}"), signer.changed(&json!({"scope": scope})), verdict)
        })
        .collect()
}
