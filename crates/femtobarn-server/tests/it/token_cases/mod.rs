//! A table of valid and invalid tokens, with the rights of each: `root://`, HTTP and gRPC of one server must agree on
//! each.
//!
//! | module | contents |
//! |---|---|
//! | `signing` | keys and tokens, of any header, claims and signature |
//! | `judges` | asks a server by each protocol |
//! | `claims`, `scopes`, `roles`, `forms` | the cases: the claims of tokens; their scopes; roles of tokens without scopes; headers, signatures and bytes |

mod claims;
mod forms;
mod judges;
mod roles;
mod scopes;
mod signing;

use femtobarn_server::config::Allowed;
use judges::Judges;
use signing::Signer;

use crate::tokens::Guarded;

/// The validity and the rights of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The token is invalid.
    Refused,
    /// The token is valid, and lets its client read the federation, or change it, or neither.
    Valid { reads: bool, changes: bool },
}

const REFUSED: Verdict = Verdict::Refused;
const NOTHING: Verdict = Verdict::Valid { reads: false, changes: false };
const READS: Verdict = Verdict::Valid { reads: true, changes: false };
const CHANGES: Verdict = Verdict::Valid { reads: false, changes: true };
const BOTH: Verdict = Verdict::Valid { reads: true, changes: true };

/// A token and its verdict, under a name.
struct Case {
    name: String,
    token: String,
    verdict: Verdict,
}

impl Case {
    fn new(name: impl Into<String>, token: String, verdict: Verdict) -> Self {
        Case { name: name.into(), token, verdict }
    }
}

#[test]
fn all_protocols_agree_on_every_token() {
    let guarded = Guarded::start_with(|config| {
        config.auth.anonymous = Allowed::Nothing;
        config.roles = roles::settings();
    });
    let signer = Signer::new(&guarded);
    let mut cases = claims::cases(&signer);
    cases.extend(scopes::cases(&signer));
    cases.extend(roles::cases(&signer));
    cases.extend(forms::cases(&signer));
    assert!(cases.len() >= 150, "there are {} cases", cases.len());
    let mut judges = Judges::of(&guarded);
    let wrong: Vec<_> = cases
        .iter()
        .flat_map(|case| {
            let verdicts = judges.verdicts(&case.token);
            let expected = |judge| match (judge, case.verdict) {
                ("HTTP", Verdict::Valid { reads, .. }) => Verdict::Valid { reads, changes: false },
                (_, verdict) => verdict,
            };
            let wrong = verdicts.into_iter().filter(|(judge, it)| *it != expected(*judge));
            wrong
                .map(|(judge, verdict)| {
                    format!("{}: {judge} {verdict:?} instead of {:?}", case.name, case.verdict)
                })
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
