//! Finding or creating the container that Python names, and its options.

use std::cmp::Ordering;
use std::sync::Arc;

use femtobarn::{
    Class, ContainerKey, ContainerOptions, Overlap, Profile, SeriesClock, SeriesOptions,
    Transaction,
};
use pyo3::prelude::*;

use crate::error::{OrRaise, exception};

/// Opens a container, or creates it with `create`, and locks it. With `evolve` its objects become ones of a
/// newer version of their class.
///
/// # Errors
/// Those of the engine; `InvalidError` if the container holds another class.
pub(crate) fn find_container(
    transaction: &mut Transaction,
    database: &str,
    name: &str,
    class: Option<Class>,
    create: bool,
    evolve: bool,
    options: ContainerOptions,
) -> PyResult<(ContainerKey, Arc<Class>)> {
    let key = match transaction.last_container_at(database, name).or_raise()? {
        Some(key) => key,
        None => open_or_create(transaction, database, name, class.as_ref(), create, options)?,
    };
    let stored = transaction.shared_class(key).or_raise()?;
    match class {
        Some(class)
            if evolve && stored.is_called(&class.name) && class.version > stored.version =>
        {
            transaction.evolve(key, &class).or_raise()?;
            Ok((key, transaction.shared_class(key).or_raise()?))
        }
        Some(class) if !stored.is_called(&class.name) || class.fields != stored.fields => {
            Err(exception("invalid", mismatch(name, &class, &stored)))
        }
        _ => Ok((key, stored)),
    }
}

fn open_or_create(
    transaction: &mut Transaction,
    database: &str,
    name: &str,
    class: Option<&Class>,
    create: bool,
    options: ContainerOptions,
) -> PyResult<ContainerKey> {
    let database = transaction.database(database).or_raise()?;
    let is_new = create && transaction.find_container(database, name).or_raise()?.is_none();
    match (is_new, class) {
        (false, _) => transaction.container(database, name).or_raise(),
        (true, Some(class)) => {
            transaction.create_container(database, name, class, options).or_raise()
        }
        (true, None) => {
            let text = format!("new container {name:?} needs a class; pass cls");
            Err(exception("invalid", text))
        }
    }
}

fn mismatch(container: &str, given: &Class, stored: &Class) -> String {
    if !stored.is_called(&given.name) {
        let (stored, given) = (&stored.name, &given.name);
        return format!("container {container:?} holds objects of class {stored}, not {given}");
    }
    let unlike = given.fields.iter().find(|field| !stored.fields.contains(field));
    let unlike =
        unlike.or_else(|| stored.fields.iter().find(|field| !given.fields.contains(field)));
    let field =
        unlike.map_or_else(|| "the order of fields".to_owned(), |f| format!("field {:?}", f.name));
    let advice = match given.version.cmp(&stored.version) {
        Ordering::Greater => "pass evolve=True to convert its objects".to_owned(),
        Ordering::Equal => format!(
            "raise the version, as in @fb.persistent(version={}), and pass evolve=True to change its objects",
            stored.version + 1
        ),
        Ordering::Less => {
            format!("the container has a newer version: use version {} or newer", stored.version)
        }
    };
    format!(
        "container {container:?} holds class {} as of version {}, from which this one, version {}, \
         differs in {field}; {advice}, or use another container",
        stored.name, stored.version, given.version
    )
}

/// Options of a new container; the rest are defaults.
///
/// # Errors
/// `InvalidError` for an unknown compression.
pub(crate) fn container_options(
    page_size: Option<usize>,
    cluster_size: Option<u64>,
    compression: Option<&str>,
    series: Option<SeriesOptions>,
) -> PyResult<ContainerOptions> {
    let default = ContainerOptions::default();
    Ok(ContainerOptions {
        page_size: page_size.unwrap_or(default.page_size),
        cluster_size: cluster_size.unwrap_or(default.cluster_size),
        compression: compression.map_or(Ok(default.compression), profile_of)?,
        series,
    })
}

/// The compression of this name.
///
/// # Errors
/// `InvalidError` for an unknown one.
pub(crate) fn profile_of(name: &str) -> PyResult<Profile> {
    match name {
        "none" | "plain" => Ok(Profile::Plain),
        "lz4" | "fast" => Ok(Profile::Fast),
        "zstd" | "archive" => Ok(Profile::Archive),
        other => {
            let text = format!("unknown compression {other:?}: use none, lz4 or zstd");
            Err(exception("invalid", text))
        }
    }
}

/// The options of a series with this clock and this meaning of overlaps.
///
/// # Errors
/// `InvalidError` for an unknown name.
pub(crate) fn series_options(clock: &str, overlap: &str) -> PyResult<SeriesOptions> {
    let clock = match clock {
        "time" => SeriesClock::Time,
        "run" => SeriesClock::Run,
        other => {
            return Err(exception("invalid", format!("unknown clock {other:?}: use time or run")));
        }
    };
    let overlap = match overlap {
        "newest" => Overlap::Newest,
        "open" => Overlap::Open,
        "refuse" => Overlap::Refuse,
        other => {
            return Err(exception(
                "invalid",
                format!("unknown overlap {other:?}: use newest, open or refuse"),
            ));
        }
    };
    Ok(SeriesOptions { clock, overlap, is_branch: false })
}

/// The names of the clock and of the meaning of overlaps.
pub(crate) fn series_names(options: SeriesOptions) -> (&'static str, &'static str) {
    let clock = match options.clock {
        SeriesClock::Time => "time",
        SeriesClock::Run => "run",
    };
    let overlap = match options.overlap {
        Overlap::Newest => "newest",
        Overlap::Open => "open",
        Overlap::Refuse => "refuse",
    };
    (clock, overlap)
}
