//! The answers of a site's commands, as bytes that a program wrote.
//!
//! 1. Nothing in them is longer than [`TEXT_CHARS_MAX`] or has control characters, since texts go to logs, to the
//!    catalogue and to terminals. Reasons are shortened; the name of a tape is refused, because a part of it would be
//!    another one.
//! 2. Bytes never panic; nesting is limited by the parser of JSON.

use serde::Deserialize;

/// Characters of a text that a command may answer.
const TEXT_CHARS_MAX: usize = 1000;
/// Characters of the name of a tape.
const TAPE_CHARS_MAX: usize = 200;
/// The longest delay that a command can announce: a day.
const RETRY_SECONDS_MAX: u64 = 24 * 60 * 60;

/// The answer of a command: the last line of its output, an object of JSON.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct CommandAnswer {
    /// Why the command failed.
    pub error: Option<String>,
    /// Seconds after which the operation may be tried again.
    pub retry_after_seconds: Option<u64>,
    /// Whether the object exists.
    pub exists: Option<bool>,
    /// Bytes of the object.
    pub size: Option<u64>,
    /// The object's checksum, such as `adler32:0a1b2c3d`.
    pub checksum: Option<String>,
    /// The name of the object's tape; `None`, too, if it is empty.
    pub tape: Option<String>,
    /// The place of the object on the tape.
    pub position: u64,
}

impl CommandAnswer {
    /// The answer at the end of an output; one without properties if the output is empty.
    ///
    /// # Errors
    /// A text that states what is wrong with the last line.
    pub fn decode(output: &[u8]) -> Result<Self, String> {
        let line = last_line(output);
        if line.is_empty() {
            return Ok(CommandAnswer::default());
        }
        let wrong = |why: String| format!("its last line {:?} {why}", shortened(&line));
        let mut answer: CommandAnswer = serde_json::from_str(&line).map_err(|error| {
            wrong(format!("is not a JSON answer: {}", shortened(&error.to_string())))
        })?;
        answer.tape =
            answer.tape.map(|tape| tape.trim().to_owned()).filter(|tape| !tape.is_empty());
        if answer.tape.as_ref().is_some_and(|tape| !is_name_of_tape(tape)) {
            return Err(wrong(format!(
                "names a tape with more than {TAPE_CHARS_MAX} characters, or with control characters"
            )));
        }
        if i64::try_from(answer.position).is_err() {
            return Err(wrong(format!("has a position above {}", i64::MAX)));
        }
        answer.error = answer.error.map(|text| shortened(&text));
        answer.checksum = answer.checksum.map(|text| shortened(&text));
        answer.retry_after_seconds = answer.retry_after_seconds.map(|it| it.min(RETRY_SECONDS_MAX));
        Ok(answer)
    }
}

fn is_name_of_tape(text: &str) -> bool {
    text.chars().count() <= TAPE_CHARS_MAX && !text.chars().any(char::is_control)
}

/// The last line of an output that is not empty.
pub(super) fn last_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}

/// The beginning of a text, with blanks in the place of control characters.
pub(super) fn shortened(text: &str) -> String {
    let plain = text.chars().map(|it| if it.is_control() { ' ' } else { it });
    let mut short: String = plain.take(TEXT_CHARS_MAX).collect();
    if text.chars().nth(TEXT_CHARS_MAX).is_some() {
        short.push_str("...");
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_the_last_line_that_is_not_empty() {
        let answer = CommandAnswer::decode(b"progress\n{\"exists\": true, \"size\": 7}\n \n");
        let expected =
            CommandAnswer { exists: Some(true), size: Some(7), ..CommandAnswer::default() };
        assert_eq!(answer, Ok(expected));
        assert_eq!(CommandAnswer::decode(b" \n"), Ok(CommandAnswer::default()));
    }

    /// Texts of 64 KiB with escape sequences once went to logs, to the catalogue and to terminals.
    #[test]
    fn texts_are_short_and_plain() {
        let long = format!(
            r#"{{"error": "\u001b[2J{}", "retry_after_seconds": {}}}"#,
            "x".repeat(5000),
            u64::MAX
        );
        let answer = CommandAnswer::decode(long.as_bytes()).expect("it is an answer");
        let error = answer.error.expect("it has a reason");
        assert!(error.starts_with(" [2Jx") && error.ends_with("xxx...") && error.len() == 1003);
        assert_eq!(answer.retry_after_seconds, Some(86_400));
        // The parser shows a text that it did not expect.
        let text = "y".repeat(60_000);
        for line in [text.clone(), format!("{text:?}"), format!(r#"{{"size": "{text}"}}"#)] {
            let why = CommandAnswer::decode(line.as_bytes()).expect_err("it is no answer");
            assert!(why.contains("is not a JSON answer") && why.len() < 2200, "{why}");
        }
    }

    #[test]
    fn names_of_tapes_and_positions_that_cannot_be_kept_are_refused() {
        let long = format!(r#"{{"tape": "{}"}}"#, "L".repeat(201));
        let cases = [r#"{"tape": "L\n1"}"#, &long, r#"{"position": 9223372036854775808}"#];
        for text in cases {
            let why = CommandAnswer::decode(text.as_bytes()).expect_err("it is refused");
            assert!(why.contains("tape") || why.contains("position above"), "{why}");
        }
        let nested = format!(r#"{{"other": {}}}"#, "[".repeat(60_000));
        assert!(CommandAnswer::decode(nested.as_bytes()).is_err());
    }
}
