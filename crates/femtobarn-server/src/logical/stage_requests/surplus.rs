//! Chooses the requests to forget if there are too many: finished ones before unfinished ones, and of these the oldest
//! of the user with the most. The newest request of all stays.

use std::cmp::Reverse;
use std::collections::HashMap;

/// The most requests, and the most files in all of them.
const REQUESTS_MAX: usize = 1000;
const FILES_KEPT_MAX: usize = 200_000;

/// The properties of a request that decide whether it is forgotten.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedRequest<'a> {
    pub user: &'a str,
    /// The number of its files.
    pub files: usize,
    pub is_over: bool,
}

/// The index of the request to forget next, in `requests`, the oldest first; `None` if all may stay.
pub(super) fn next_to_forget(requests: &[CountedRequest<'_>]) -> Option<usize> {
    let files: usize = requests.iter().map(|request| request.files).sum();
    let are_too_many = requests.len() > REQUESTS_MAX;
    if !are_too_many && files <= FILES_KEPT_MAX {
        return None;
    }
    let mut sums: HashMap<&str, usize> = HashMap::new();
    for request in requests {
        let more = if are_too_many { 1 } else { request.files };
        *sums.entry(request.user).or_default() += more;
    }
    let (_newest, others) = requests.split_last()?;
    let next = others
        .iter()
        .enumerate()
        .max_by_key(|(index, request)| (request.is_over, sums.get(request.user), Reverse(*index)));
    next.map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(user: &str, files: usize, is_over: bool) -> CountedRequest<'_> {
        CountedRequest { user, files, is_over }
    }

    #[test]
    fn a_user_cannot_displace_the_requests_of_others() {
        let mut requests = vec![counted("ann", 1, false); 2];
        requests.extend([counted("bob", 1, false); REQUESTS_MAX - 2]);
        assert_eq!(next_to_forget(&requests), None);
        requests.push(counted("bob", 1, false));
        assert_eq!(next_to_forget(&requests), Some(2), "the oldest of bob");
        requests[1].is_over = true;
        requests[REQUESTS_MAX].is_over = true;
        assert_eq!(next_to_forget(&requests), Some(1), "it is over, and not the newest");
    }

    #[test]
    fn too_many_files_displace_requests_of_the_user_with_the_most() {
        let mut requests = vec![counted("ann", 1, false), counted("bob", FILES_KEPT_MAX, false)];
        requests.extend([counted("ann", 1, false); 2]);
        assert_eq!(next_to_forget(&requests), Some(1));
        requests.remove(1);
        assert_eq!(next_to_forget(&requests), None);
        assert_eq!(next_to_forget(&[counted("ann", FILES_KEPT_MAX + 1, true)]), None);
    }
}
