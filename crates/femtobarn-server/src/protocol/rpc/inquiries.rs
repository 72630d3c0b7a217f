//! Questions that come with the operations of a session.
//!
//! They are answered when their operation has ended; those of a lock also not before the lock right before it in its
//! turn, if that has the same owner. So a client that locks a database and a container in one turn gets the rows of
//! both as they are while it holds both, and no transaction waits for two locks one after the other.

use std::collections::HashMap;

use femtobarn_rpc::v1::Question;
use prost::Message;

use crate::logical::catalogue::OperationOutcome;

/// Questions of a session that were not answered yet, at most.
const OPEN_MAX: usize = 1024;
/// Bytes of the questions of one operation, at most.
const QUESTION_BYTES_MAX: usize = 4 << 10;

/// The questions of operations that have not ended, or whose predecessors have not ended.
#[derive(Debug, Default)]
pub(super) struct Inquiries {
    /// The open inquiries, by the numbers of their operations.
    open: HashMap<u64, Inquiry>,
    /// The inquiries that wait for another operation, by the number of that operation.
    blocked: HashMap<u64, u64>,
}

#[derive(Debug)]
struct Inquiry {
    questions: Vec<Question>,
    is_blocked: bool,
    /// The outcome of its operation, if that ended before the one that blocks the inquiry.
    outcome: Option<OperationOutcome>,
}

impl Inquiries {
    /// Whether these questions can be added. Otherwise they get no answers, and the client asks them by look-ups.
    pub(super) fn has_room(&self, questions: &[Question]) -> bool {
        let open: usize = self.open.values().map(|inquiry| inquiry.questions.len()).sum();
        let bytes: usize = questions.iter().map(Message::encoded_len).sum();
        open + questions.len() <= OPEN_MAX && bytes <= QUESTION_BYTES_MAX
    }

    /// Adds the questions of an operation that is about to begin. `before` is the operation that they wait for, too.
    pub(super) fn add(&mut self, number: u64, questions: Vec<Question>, before: Option<u64>) {
        if let Some(before) = before {
            self.blocked.insert(before, number);
        }
        let is_blocked = before.is_some();
        self.open.insert(number, Inquiry { questions, is_blocked, outcome: None });
    }

    /// Records that an operation has ended. Returns the outcomes to be sent now, each with its questions.
    pub(super) fn settle(
        &mut self,
        outcome: OperationOutcome,
    ) -> impl Iterator<Item = (OperationOutcome, Vec<Question>)> + use<> {
        let number = outcome.number;
        let own = match self.open.get_mut(&number) {
            Some(inquiry) if inquiry.is_blocked => {
                inquiry.outcome = Some(outcome);
                None
            }
            _ => Some((outcome, self.take_questions(number))),
        };
        let next = self.blocked.remove(&number).and_then(|next| {
            let inquiry = self.open.get_mut(&next)?;
            inquiry.is_blocked = false;
            let outcome = inquiry.outcome.take()?;
            Some((outcome, self.take_questions(next)))
        });
        own.into_iter().chain(next)
    }

    fn take_questions(&mut self, number: u64) -> Vec<Question> {
        self.open.remove(&number).map_or_else(Vec::new, |inquiry| inquiry.questions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logical::catalogue::Granted;

    /// The numbers of the outcomes that the end of an operation releases, with the numbers of their questions.
    fn end(inquiries: &mut Inquiries, number: u64) -> Vec<(u64, usize)> {
        let ended = OperationOutcome { number, result: Ok(Granted::default()) };
        let sent = inquiries.settle(ended);
        sent.map(|(outcome, questions)| (outcome.number, questions.len())).collect()
    }

    #[test]
    fn questions_wait_for_their_operation_and_the_one_before_it() {
        for (order, released) in
            [([1, 2], [vec![(1, 0)], vec![(2, 3)]]), ([2, 1], [vec![], vec![(1, 0), (2, 3)]])]
        {
            let mut inquiries = Inquiries::default();
            inquiries.add(2, vec![Question::default(); 3], Some(1));
            assert_eq!(order.map(|number| end(&mut inquiries, number)), released);
            assert!(inquiries.open.is_empty() && inquiries.blocked.is_empty());
        }
    }

    #[test]
    fn a_session_has_no_more_than_so_many_questions_at_once() {
        let mut inquiries = Inquiries::default();
        let questions = vec![Question::default(); 16];
        let numbers = 1..=(OPEN_MAX / questions.len()) as u64;
        for number in numbers {
            assert!(inquiries.has_room(&questions));
            inquiries.add(number, questions.clone(), None);
        }
        assert!(!inquiries.has_room(&questions));
        assert_eq!(end(&mut inquiries, 1), [(1, 16)]);
        assert!(inquiries.has_room(&questions));
        let federation = "x".repeat(QUESTION_BYTES_MAX);
        assert!(!inquiries.has_room(&[Question { federation, ..Question::default() }]));
    }

    #[test]
    fn questions_of_a_chain_of_operations_are_all_released() {
        let mut inquiries = Inquiries::default();
        inquiries.add(1, vec![Question::default()], None);
        inquiries.add(2, vec![Question::default()], Some(1));
        inquiries.add(3, vec![Question::default()], Some(2));
        assert_eq!(end(&mut inquiries, 3), []);
        assert_eq!(end(&mut inquiries, 1), [(1, 1)]);
        assert_eq!(end(&mut inquiries, 2), [(2, 1), (3, 1)]);
        assert!(inquiries.open.is_empty() && inquiries.blocked.is_empty());
    }
}
