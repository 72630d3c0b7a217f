//! Runs scripts on federations, under watch.
//!
//! | arguments | what |
//! |---|---|
//! | `record SCRIPT FOLDER TRACE` | runs a script in `FOLDER/fed` and records what it does to the files |
//! | `fail SCRIPT KIND FOLDER LIMIT SEED` | runs it again and again; each time another operation fails |
//! | `write FOLDER WRITER COUNT` | is one of the writers of the soak; says which transactions happened |

mod failing;
mod interposer;

use std::path::Path;
use std::process::ExitCode;

use femtobarn_faults::script::{Runner, Script};
use femtobarn_faults::soak;
use femtobarn_faults::verify::acknowledgement;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["record", script, folder, trace] => record(script, Path::new(folder), Path::new(trace)),
        ["fail", script, kind, folder, limit, seed] => {
            failing::fail(script, kind, Path::new(folder), limit, seed)
        }
        ["write", folder, writer, count] => write(Path::new(folder), writer, count),
        _ => Err("the arguments are those of the program's documentation".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn record(name: &str, folder: &Path, trace: &Path) -> Result<(), String> {
    let script = Script::named(name).ok_or_else(|| format!("there is no script {name:?}"))?;
    interposer::start(folder, Some(trace), None);
    let federation = folder.join("fed");
    let mut runner = Runner::create(&federation).map_err(|error| error.to_string())?;
    interposer::acknowledge("created");
    for step in &script.steps {
        let csn = runner.run(step).map_err(|error| error.to_string())?;
        interposer::acknowledge(&acknowledgement(csn));
    }
    drop(runner);
    interposer::stop();
    Ok(())
}

fn write(folder: &Path, writer: &str, count: &str) -> Result<(), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let said = soak::write(folder, number(writer)?, number(count)?, |number| println!("{number}"));
    said.map_err(|error| error.to_string())
}
