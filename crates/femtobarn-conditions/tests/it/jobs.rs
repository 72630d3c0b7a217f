//! Jobs read the same, whatever is committed after they were opened.

use femtobarn::{ContainerOptions, Csn, ErrorKind, Overlap};
use femtobarn_conditions::{Job, JobOptions};

use super::support::{begin, commit, federation, row};

#[test]
fn a_job_does_not_see_later_commits() {
    let (_folder, federation) = federation();
    let first = commit(&federation, "gain", Overlap::Newest, &[row(0, 0, 100, 0)]);
    let job = Job::open(&federation, &JobOptions::default()).unwrap();
    commit(&federation, "gain", Overlap::Newest, &[row(0, 40, 60, 1)]);
    let later = Job::open(&federation, &JobOptions::default()).unwrap();
    let as_of = JobOptions { csn: Some(first), ..Default::default() };
    let again = Job::open(&federation, &as_of).unwrap();
    for (job, entry) in [(&job, 0), (&later, 1), (&again, 0)] {
        assert_eq!(job.series("det/gain").unwrap().at(0, 50).unwrap().entry, Some(entry));
        assert_eq!(job.names().unwrap(), ["det/gain"]);
    }
}

#[test]
fn containers_without_series_options_are_refused() {
    let (_folder, federation) = federation();
    commit(&federation, "gain", Overlap::Newest, &[]);
    let mut transaction = begin(&federation);
    let database = transaction.database("det").unwrap();
    let class =
        r#"{"name": "Gain", "version": 1, "fields": [{"name": "value", "type": "float64"}]}"#;
    let class = femtobarn::Class::from_json(class).unwrap();
    transaction.create_container(database, "plain", &class, ContainerOptions::default()).unwrap();
    transaction.commit().unwrap();
    let job = Job::open(&federation, &JobOptions::default()).unwrap();
    let kind = |path| job.series(path).map(drop).unwrap_err().kind();
    assert_eq!(kind("det/plain"), ErrorKind::Invalid);
    assert_eq!(kind("det/absent"), ErrorKind::NotFound);
    assert_eq!(job.names().unwrap(), ["det/gain"]);
    let future = JobOptions { csn: Some(Csn(1000)), ..Default::default() };
    assert_eq!(Job::open(&federation, &future).map(drop).unwrap_err().kind(), ErrorKind::NotFound);
}
