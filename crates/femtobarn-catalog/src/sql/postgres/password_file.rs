//! Passwords from the places where PostgreSQL's own programs look for them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The password for a server, a port, a database and a user: from `PGPASSWORD`, or the first line that fits of the
/// file `named`, or else of that which `PGPASSFILE` names, or else of `~/.pgpass`. A file that others than its owner may
/// read is passed over.
pub(super) fn password(named: Option<&Path>, wanted: [&str; 4]) -> Option<String> {
    if let Ok(password) = std::env::var("PGPASSWORD") {
        return Some(password);
    }
    let path = named.map(Path::to_owned).or_else(default_path)?;
    let is_private = fs::metadata(&path)
        .is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o077 == 0);
    let text = is_private.then(|| fs::read_to_string(&path).ok()).flatten()?;
    text.lines().find_map(|line| password_of_line(line, wanted))
}

fn default_path() -> Option<PathBuf> {
    let named = std::env::var_os("PGPASSFILE").map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pgpass")))
}

/// The password of a line `host:port:database:user:password`, if the line fits. `*` fits all, and a backslash stands
/// before a colon or a backslash of a field.
fn password_of_line(line: &str, wanted: [&str; 4]) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => fields.last_mut()?.extend(characters.next()),
            ':' if fields.len() < 5 => fields.push(String::new()),
            other => fields.last_mut()?.push(other),
        }
    }
    let [host, port, database, user, password] = <[String; 5]>::try_from(fields).ok()?;
    let fits = [host, port, database, user]
        .iter()
        .zip(wanted)
        .all(|(field, value)| field == "*" || field == value);
    fits.then_some(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let wanted = ["db1", "5432", "lhc", "anna"];
        assert_eq!(password_of_line("db1:5432:lhc:anna:s:e\\\\c", wanted).unwrap(), "s:e\\c");
        assert_eq!(password_of_line("*:*:*:anna:x", wanted).unwrap(), "x");
        assert_eq!(password_of_line("db2:*:*:anna:x", wanted), None);
        assert_eq!(password_of_line("#*:*:*:*:x", wanted), None);
        assert_eq!(password_of_line("*:*:*:x", wanted), None);
        let socket = ["/run/pg:1", "5432", "lhc", "anna"];
        assert_eq!(password_of_line("/run/pg\\:1:5432:*:*:y", socket).unwrap(), "y");
    }
}
