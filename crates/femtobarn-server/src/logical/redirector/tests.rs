//! The answers to clients, derived from given answers of servers: without servers.

use std::future::{pending, ready};
use std::net::{IpAddr, Ipv4Addr};

use super::*;
use xrd::ErrorCode;

const HERE: Presence = Presence::Here { is_online: true, is_writable: true };
const CLIENT: RedirectedClient = RedirectedClient {
    address: IpAddr::V4(Ipv4Addr::LOCALHOST),
    is_server: false,
    comes_again: false,
};
/// Clients a minute for each cache.
const TEN: NonZeroU32 = NonZeroU32::MIN.saturating_add(9);
/// Longer than any test may take.
const LONG: Duration = Duration::from_secs(3600);

fn absent() -> Presence {
    Presence::Absent("no such file".to_owned())
}

fn refused() -> Presence {
    Presence::Refused(ErrorCode::NOT_AUTHORIZED, "not yours".to_owned())
}

fn on_tape() -> Presence {
    Presence::Here { is_online: false, is_writable: true }
}

fn read_only() -> Presence {
    Presence::Here { is_online: true, is_writable: false }
}

/// A redirector to servers that are up: `s0`, `s1`, ..
fn redirector(count: usize) -> Redirector {
    redirector_near(count, |_| vec![])
}

/// A redirector with the clients near each server.
fn redirector_near(count: usize, clients_near: impl Fn(&Url) -> Vec<Network>) -> Redirector {
    let urls = (0..count).map(|number| Url::parse(&format!("root://s{number}//data")));
    let urls = urls.map(|url| url.expect("a URL")).collect();
    let redirector = Redirector::new(urls, vec![], clients_near, TEN);
    let redirector = redirector.expect("servers with names of their own");
    redirector.servers.iter().for_each(|server| server.rises(0));
    redirector
}

fn path(text: &str) -> StoragePath {
    StoragePath::new(text.as_bytes()).expect("a clean path")
}

fn question<'a>(path: &'a StoragePath, opaque: &'a [u8]) -> ClientQuestion<'a> {
    ClientQuestion { path, opaque: Opaque(opaque), anew: false, client: CLIENT }
}

impl Redirector {
    /// Stores these answers of servers about a path.
    async fn hears(&self, text: &str, said: &[Presence]) {
        for patiently in [false, true] {
            let question = (Location::new(text.to_owned()).expect("a path"), patiently);
            let said = said.to_vec();
            self.kept.get(question, true, || async move { said }).await;
        }
    }

    /// The server that a client is sent to that asks for `/data/f`.
    async fn sends(&self, said: &[Presence], wish: AccessKind) -> Result<String, StorageError> {
        self.hears("/data/f", said).await;
        let (path, opaque) = (path("/data/f"), Opaque::default());
        let asked = ClientQuestion { path: &path, opaque, anew: false, client: CLIENT };
        let heard = self.hear(asked, false).await?;
        let chosen = self.choose(&[heard], wish).await?;
        Ok(chosen.endpoint().host.clone())
    }
}

fn errno(sent: Result<String, StorageError>) -> Errno {
    match sent {
        Err(StorageError::Refused(errno, _)) => errno,
        other => panic!("{other:?}"),
    }
}

fn must_wait(sent: &Result<String, StorageError>) -> bool {
    matches!(sent, Err(StorageError::NotBefore(..)))
}

#[tokio::test]
async fn slow_servers_are_waited_for_by_patient_clients_alone() {
    let slowly = || async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        HERE
    };
    let questions = || -> Vec<std::pin::Pin<Box<dyn Future<Output = Presence> + Send>>> {
        vec![Box::pin(ready(HERE)), Box::pin(slowly()), Box::pin(ready(absent()))]
    };
    assert_eq!(gathered(questions(), LONG, None).await, [HERE, HERE, absent()]);
    let mut hung = questions();
    hung[1] = Box::pin(pending());
    let grace = Some(Duration::from_millis(1));
    assert_eq!(gathered(hung, LONG, grace).await, [HERE, Presence::Unknown, absent()]);
    // Before a server has it there is no grace, so all are waited for.
    let mut late = questions();
    late[0] = Box::pin(ready(absent()));
    assert_eq!(gathered(late, LONG, grace).await, [absent(), HERE, absent()]);
    let silent = vec![pending(), pending()];
    let patience = Duration::from_millis(1);
    assert_eq!(gathered(silent, patience, None).await, vec![Presence::Unknown; 2]);
}

#[tokio::test]
async fn only_not_found_counts_as_absent() {
    let all = redirector(2);
    let read = AccessKind::Read;
    assert_eq!(all.sends(&[absent(), HERE], read).await, Ok("s1".to_owned()));
    assert_eq!(errno(all.sends(&[absent(), absent()], read).await), Errno::ENOENT);
    assert_eq!(errno(all.sends(&[absent(), Presence::Down], read).await), Errno::ENOENT);
    assert_eq!(errno(all.sends(&[absent(), refused()], read).await), Errno::EACCES);
    for said in [[absent(), Presence::Unknown], [Presence::Down, Presence::Down]] {
        assert_eq!(errno(all.sends(&said, read).await), Errno::EHOSTUNREACH, "{said:?}");
    }
}

#[tokio::test]
async fn a_path_is_made_only_if_all_servers_that_are_up_lack_it() {
    let all = redirector(3);
    all.hears("/data", &[HERE, HERE, HERE]).await;
    let create = AccessKind::Create;
    assert!(all.sends(&[absent(), absent(), absent()], create).await.is_ok());
    assert!(must_wait(&all.sends(&[absent(), Presence::Unknown, absent()], create).await));
    assert_eq!(errno(all.sends(&[absent(), refused(), absent()], create).await), Errno::EACCES);
    assert_eq!(
        all.sends(&[absent(), HERE, Presence::Unknown], create).await,
        Ok("s1".to_owned()),
        "it exists"
    );
    // A server that is down is not asked.
    all.servers[1].falls("it hangs".to_owned());
    let sent = all.sends(&[absent(), Presence::Down, absent()], create).await;
    assert!(sent.is_ok_and(|server| server != "s1"));
    assert_eq!(
        errno(all.sends(&[absent(), HERE, absent()], AccessKind::Change).await),
        Errno::EHOSTUNREACH
    );
}

#[tokio::test]
async fn a_new_path_has_one_server_whoever_asks() {
    let (one, two) = (redirector(3), redirector(3));
    let mut seen = std::collections::HashSet::new();
    for number in 0..40 {
        let path = path(&format!("/data/f{number}"));
        let asked = question(&path, b"");
        let mut chosen = vec![];
        for redirector in [&one, &two] {
            redirector.hears("/data", &[HERE, HERE, HERE]).await;
            redirector.hears(&path.to_string(), &[absent(), absent(), absent()]).await;
            // The server's load does not matter.
            redirector.servers[number % 3].rises(1000);
            chosen.push(redirector.find(&[asked], AccessKind::Create).await.expect("a server"));
        }
        assert_eq!(chosen[0], chosen[1]);
        seen.insert(chosen[0].host.clone());
    }
    assert_eq!(seen.len(), 3);
}

#[tokio::test]
async fn a_new_path_is_made_where_its_folder_is() {
    let all = redirector(3);
    let none = [absent(), absent(), absent()];
    all.hears("/data", &[absent(), HERE, absent()]).await;
    assert_eq!(all.sends(&none, AccessKind::Create).await, Ok("s1".to_owned()));
    all.hears("/data", &[read_only(), absent(), HERE]).await;
    assert_eq!(all.sends(&none, AccessKind::Create).await, Ok("s2".to_owned()));
    all.hears("/data", &none).await;
    assert!(all.sends(&none, AccessKind::Create).await.is_ok());
}

#[tokio::test]
async fn servers_that_are_ready_for_the_access_are_preferred() {
    let all = redirector(2);
    for _ in 0..20 {
        assert_eq!(
            all.sends(&[on_tape(), read_only()], AccessKind::Read).await,
            Ok("s1".to_owned())
        );
        assert_eq!(
            all.sends(&[on_tape(), read_only()], AccessKind::Change).await,
            Ok("s0".to_owned())
        );
    }
    assert_eq!(all.sends(&[on_tape(), absent()], AccessKind::Read).await, Ok("s0".to_owned()));
}

#[tokio::test]
async fn servers_near_the_client_are_preferred_while_they_are_up_and_not_late() {
    let near = |url: &Url| match &*url.server.host {
        "s1" => vec!["127.0.0.0/8".parse().expect("a network")],
        _ => vec!["10.0.0.0/8".parse().expect("a network")],
    };
    let all = redirector_near(2, near);
    for _ in 0..20 {
        // This server has the higher load.
        all.servers[1].rises(1000);
        assert_eq!(all.sends(&[HERE, HERE], AccessKind::Read).await, Ok("s1".to_owned()));
    }
    assert_eq!(all.sends(&[HERE, absent()], AccessKind::Read).await, Ok("s0".to_owned()));
    assert_eq!(all.sends(&[HERE, on_tape()], AccessKind::Read).await, Ok("s0".to_owned()));
    all.servers[1].lags();
    assert_eq!(all.sends(&[HERE, HERE], AccessKind::Read).await, Ok("s0".to_owned()));
    all.servers[0].lags();
    assert_eq!(all.sends(&[HERE, HERE], AccessKind::Read).await, Ok("s1".to_owned()));
    all.servers[1].falls("it hangs".to_owned());
    assert_eq!(all.sends(&[HERE, HERE], AccessKind::Read).await, Ok("s0".to_owned()));
}

#[tokio::test]
async fn tried_servers_are_left_out() {
    let all = redirector(2);
    let path = path("/data/f");
    let asked = |opaque: &'static [u8]| question(&path, opaque);
    let heard = |opaque, said: &[Presence]| AnsweredQuestion {
        asked: asked(opaque),
        said: Arc::new(kept::ServerAnswers { at: clock::now(), presences: said.to_vec() }),
    };
    let sent = |opaque, said: &[Presence]| {
        let server = choice::holder(&all.servers, &[heard(opaque, said)], AccessKind::Read);
        server.map(|server| server.endpoint().host.as_str())
    };
    assert_eq!(sent(b"tried=s0", &[HERE, HERE]), Some("s1"));
    assert_eq!(sent(b"tried=s0,S1", &[HERE, HERE]), None);
    let homes = |opaque, said: &[Presence]| choice::homes(&all.servers, &heard(opaque, said));
    assert_eq!(homes(b"tried=s0", &[absent(), absent()]), Ok(vec![1]));
    // The missing answer of a tried server is not waited for. A path that it has is not made elsewhere.
    assert_eq!(homes(b"tried=s0", &[Presence::Unknown, absent()]), Ok(vec![1]));
    assert!(homes(b"tried=s0", &[HERE, absent()]).is_err());
    assert!(homes(b"tried=s0,s1", &[absent(), absent()]).is_err());
}

#[tokio::test]
async fn several_paths_need_a_server_that_has_all() {
    let all = redirector(2);
    let (one, two) = (path("/data/one"), path("/data/two"));
    let opaque = Opaque::default();
    let asked =
        [&one, &two].map(|path| ClientQuestion { path, opaque, anew: false, client: CLIENT });
    let find = async |wish| all.find(&asked, wish).await.map(|server| server.host);
    all.hears("/data/one", &[HERE, HERE]).await;
    all.hears("/data/two", &[absent(), HERE]).await;
    assert_eq!(find(AccessKind::Read).await, Ok("s1".to_owned()));
    all.hears("/data/two", &[absent(), absent()]).await;
    assert_eq!(errno(find(AccessKind::Read).await), Errno::ENOENT);
    all.hears("/data/one", &[HERE, absent()]).await;
    all.hears("/data/two", &[absent(), HERE]).await;
    let heard = all.hear_all(&asked, true, false).await.expect("what was said");
    let refused =
        all.choose(&heard, AccessKind::Read).await.map(|server| server.endpoint().to_string());
    assert_eq!(errno(refused), Errno::ENOTSUP);
}

#[tokio::test]
async fn a_path_is_not_moved_onto_that_of_another_server() {
    let all = redirector(2);
    let (from, path) = (&all.servers[0], path("/data/to"));
    let check = |said: [Presence; 2]| {
        let asked = question(&path, b"");
        let said = kept::ServerAnswers { at: clock::now(), presences: said.to_vec() };
        choice::check_move(&all.servers, from, &AnsweredQuestion { asked, said: Arc::new(said) })
    };
    for said in [[absent(), absent()], [HERE, absent()], [Presence::Unknown, absent()]] {
        assert_eq!(check(said.clone()), Ok(()), "{said:?}");
    }
    let moved = |said| check(said).map(|()| String::new());
    assert_eq!(errno(moved([absent(), HERE])), Errno::EXDEV);
    assert_eq!(errno(moved([absent(), refused()])), Errno::EACCES);
    assert!(must_wait(&moved([absent(), Presence::Unknown])));
}

#[tokio::test]
async fn snapshots_are_part_of_a_question() {
    let all = redirector(2);
    all.hears("/data/f", &[absent(), HERE]).await;
    all.hears("/data/f?fb.csn=4&fb.tag=x", &[HERE, absent()]).await;
    let path = path("/data/f");
    let find = async |opaque: &'static str| {
        let asked = question(&path, opaque.as_bytes());
        all.find(&[asked], AccessKind::Read).await.map(|server| server.host)
    };
    assert_eq!(find("authz=secret").await, Ok("s1".to_owned()));
    assert_eq!(find("fb.csn=4&authz=secret&fb.tag=x").await, Ok("s0".to_owned()));
}

#[tokio::test]
async fn clients_wait_while_it_is_not_known_which_servers_are_up() {
    let urls = ["root://s0//data", "root://s1//data"].map(|url| Url::parse(url).expect("a URL"));
    let all = Redirector::new(urls.to_vec(), vec![], |_| vec![], TEN).expect("two servers");
    assert!(must_wait(&all.sends(&[Presence::Unknown, Presence::Unknown], AccessKind::Read).await));
    all.servers[0].rises(0);
    // A silent server delays only clients that need it.
    assert_eq!(all.sends(&[HERE, Presence::Unknown], AccessKind::Read).await, Ok("s0".to_owned()));
    for wish in [AccessKind::Read, AccessKind::Create] {
        assert!(must_wait(&all.sends(&[absent(), Presence::Unknown], wish).await));
    }
    all.servers[1].falls("it hangs".to_owned());
    assert_eq!(
        errno(all.sends(&[absent(), Presence::Down], AccessKind::Read).await),
        Errno::ENOENT
    );
}

/// A redirector to `servers` servers and three caches, all of them up.
fn with_caches(servers: usize, clients_near: impl Fn(&Url) -> Vec<Network>) -> Redirector {
    let urls = |letter: char, count| {
        let urls = (0..count).map(|number| Url::parse(&format!("root://{letter}{number}//data")));
        urls.map(|url| url.expect("a URL")).collect()
    };
    let all = Redirector::new(urls('s', servers), urls('c', 3), clients_near, TEN);
    let all = all.expect("servers with names of their own");
    all.servers().for_each(|(server, _)| server.rises(0));
    all
}

/// The servers that readers of a file that all servers have are sent to: the number of readers at each server and
/// cache.
async fn readers(
    all: &Redirector,
    count: usize,
    client: RedirectedClient,
    wish: AccessKind,
) -> Vec<u64> {
    let path = path("/data/f");
    for _ in 0..count {
        // Answers are dropped when the file is changed.
        all.hears("/data/f", &vec![HERE; all.servers.len()]).await;
        let asked = ClientQuestion { path: &path, opaque: Opaque::default(), anew: false, client };
        all.find(&[asked], wish).await.expect("a server");
    }
    all.servers().map(|(server, _)| server.redirects()).collect()
}

fn used(sent: &[u64]) -> usize {
    sent.iter().filter(|clients| **clients > 0).count()
}

#[tokio::test]
async fn a_file_that_many_read_is_read_from_caches_too() {
    let all = with_caches(1, |_| vec![]);
    assert_eq!(readers(&all, 10, CLIENT, AccessKind::Read).await, [10, 0, 0, 0]);
    let two = readers(&all, 10, CLIENT, AccessKind::Read).await;
    assert_eq!(used(&two), 2, "{two:?}");
    let four = readers(&all, 40, CLIENT, AccessKind::Read).await;
    assert_eq!(used(&four), 4, "one cache for every ten clients: {four:?}");
    let server = RedirectedClient { is_server: true, ..CLIENT };
    let wishes = [
        (CLIENT, AccessKind::Look),
        (CLIENT, AccessKind::Use),
        (CLIENT, AccessKind::Change),
        (server, AccessKind::Read),
    ];
    for (client, wish) in wishes {
        let before = readers(&all, 0, client, wish).await;
        let after = readers(&all, 20, client, wish).await;
        assert_eq!(after[0], before[0] + 20, "{client:?} {wish:?}");
    }
    let again = RedirectedClient { comes_again: true, ..CLIENT };
    let before = readers(&all, 0, again, AccessKind::ReadOn).await;
    let after = readers(&all, 20, again, AccessKind::ReadOn).await;
    let grown = after.iter().zip(&before).filter(|(after, before)| after > before).count();
    assert_eq!(grown, 1, "such a client finds the same server each time");
}

#[tokio::test]
async fn caches_are_used_when_no_server_answers() {
    let all = with_caches(1, |_| vec![]);
    assert_eq!(errno(all.sends(&[absent()], AccessKind::Read).await), Errno::ENOENT);
    all.hears("/data/f", &[Presence::Unknown]).await;
    all.servers[0].falls("it ended".to_owned());
    let sent = readers_of_caches(&all, 5).await;
    assert_eq!((used(&sent), sent.iter().sum::<u64>()), (1, 5), "{sent:?}");
    let path = path("/data/f");
    let asked = question(&path, b"");
    for wish in [AccessKind::Change, AccessKind::Create] {
        let refused = all.find(&[asked], wish).await.map(|server| server.host);
        assert_eq!(errno(refused), Errno::EHOSTUNREACH, "{wish:?}");
    }
}

#[tokio::test]
async fn of_servers_that_are_all_caches_each_has_its_files() {
    let all = with_caches(0, |_| vec![]);
    let sent = readers_of_caches(&all, 9).await;
    assert_eq!(used(&sent), 1, "{sent:?}");
    let other = with_caches(0, |_| vec![]);
    assert_eq!(readers_of_caches(&other, 9).await, sent, "all redirectors choose the same one");
    let many = readers_of_caches(&all, 60).await;
    assert_eq!(used(&many), 3, "{many:?}");
    let path = path("/data/f");
    let asked = question(&path, b"");
    assert_eq!(all.locate(asked).await.map(|located| located.len()), Ok(3));
    let made = all.find(&[asked], AccessKind::Create).await.map(|server| server.host);
    assert_eq!(errno(made), Errno::EROFS);
}

#[tokio::test]
async fn a_near_cache_is_used_by_a_single_client() {
    let here = "127.0.0.0/8".parse::<Network>().expect("a network");
    let all = with_caches(1, |url| if url.server.host == "c1" { vec![here] } else { vec![] });
    assert_eq!(readers(&all, 3, CLIENT, AccessKind::Read).await, [0, 0, 3, 0]);
    assert_eq!(
        readers(&all, 2, CLIENT, AccessKind::Use).await,
        [2, 0, 3, 0],
        "a cache knows no tapes"
    );
}

#[tokio::test]
async fn a_cache_is_read_if_the_server_with_the_file_may_be_the_one_that_is_down() {
    let all = with_caches(2, |_| vec![]);
    all.hears("/data/f", &[Presence::Down, absent()]).await;
    all.servers[0].falls("it ended".to_owned());
    assert_eq!(used(&readers_of_caches(&all, 3).await), 1);
    all.servers[0].rises(0);
    all.hears("/data/f", &[absent(), absent()]).await;
    let path = path("/data/f");
    let asked = question(&path, b"");
    let missing = all.find(&[asked], AccessKind::Read).await.map(|server| server.host);
    assert_eq!(errno(missing), Errno::ENOENT);
}

async fn readers_of_caches(all: &Redirector, count: usize) -> Vec<u64> {
    let path = path("/data/f");
    for _ in 0..count {
        let asked = question(&path, b"");
        all.find(&[asked], AccessKind::Read).await.expect("a cache");
    }
    all.servers().map(|(server, _)| server.redirects()).collect()
}
