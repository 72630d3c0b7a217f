//! One leader of each generation accepts changes, its followers copy its history, and a promotion that is not forced
//! loses no acknowledged commit.
//!
//! A leader has two copies, either of which may be promoted: the promotion is recorded, the leader yields and announces
//! its last commit, the copy fetches the commits that it lacks, and leads. The faults: processes end between any two
//! steps, unsynced writes are lost, and the leader does not answer. An operator may repeat a promotion; may force one
//! if the leader does not answer, of a copy that has copied something since its leader began to lead, and no other copy
//! is promoted before that leader is notified; and may make a leader that has yielded lead again, unless the promotion
//! was completed, after ending the process that promotes. Operators of the forced model may forget to end that process,
//! but then force no second promotion.
//!
//! The code: `femtobarn/src/replication`, and `femtobarn-catalog/src/local/{following,leading,role}.rs`.

use crate::explorer::Model;

const SITES: usize = 3;
/// Limits: commits and generations.
const COMMITS_MAX: usize = 3;
const GENERATIONS_MAX: u8 = 3;

/// A measure of the code against a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuccessionGuard {
    /// A follower publishes rows after their bytes are durable.
    BytesFirst,
    /// The leader yields before a copy leads.
    Yields,
    /// The copy fetches all commits that the leader had when it yielded.
    TakesAll,
    /// A leader that has yielded yields again only to the same promotion.
    KnowsPromotion,
    /// A follower checks that its newest commit is in the history of its leader.
    ChecksHistory,
    /// A follower refuses a leader of an earlier generation than it has seen.
    ChecksGeneration,
    /// A leader that leads again begins a generation after that of its successor.
    LeadsLaterAgain,
}

impl SuccessionGuard {
    /// All guards.
    pub const ALL: [Self; 7] = [
        Self::BytesFirst,
        Self::Yields,
        Self::TakesAll,
        Self::KnowsPromotion,
        Self::ChecksHistory,
        Self::ChecksGeneration,
        Self::LeadsLaterAgain,
    ];
}

/// The model, of the code as it is or without one of its guards.
#[derive(Debug, Default)]
pub struct Succession {
    /// Whether operators force promotions.
    pub is_forced: bool,
    /// The guard that is switched off.
    pub without: Option<SuccessionGuard>,
}

/// A step of the model.
#[derive(Clone, Copy, Debug)]
pub enum SuccessionStep {
    /// A user commits.
    Commit(usize),
    /// A follower reads a row of its leader, and copies its bytes.
    Copy(usize),
    /// The follower makes the bytes durable.
    Sync(usize),
    /// The follower publishes the row.
    Apply(usize),
    /// A copy begins to be promoted, or its promotion is repeated.
    Promote(usize),
    /// The leader of the copy yields, or refuses to.
    Yield(usize),
    /// The copy leads.
    Lead(usize),
    /// The copy leads, although its leader does not answer.
    Force(usize),
    /// The new leader notifies the one that it left behind.
    Tell(usize),
    /// A leader that has yielded leads again.
    LeadAgain(usize),
    /// A copy is made to follow another leader.
    Follow(usize, usize),
    /// The processes of a site end, with its machine.
    End(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SiteRole {
    Leads,
    Follows(usize),
    Yielded,
}

/// The progress of the process that promotes a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PromotionPhase {
    None,
    Begun(u8),
    /// The leader has yielded to this generation, after this number of commits.
    Yielded(u8, u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FederationCopy {
    role: SiteRole,
    generation: u8,
    /// The generation and the promotion to which the site has yielded.
    successor: Option<(u8, usize)>,
    /// The numbers of its commits, and of the commits whose bytes are durable.
    history: Vec<u8>,
    durable: u8,
    /// A row that was read from the leader, with its generation, and whether its bytes are durable.
    copied: Option<(u8, u8, bool)>,
    phase: PromotionPhase,
    /// The leader that the site left behind, until it is notified.
    untold: Option<usize>,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SuccessionState {
    sites: [FederationCopy; SITES],
    /// Of each commit: its predecessor, the site that made it, and whether it may be lost because its leader was left
    /// behind.
    before: Vec<(Option<u8>, usize)>,
    forced: Option<usize>,
    ends: u8,
    has_gone_back: bool,
}

impl Succession {
    fn has(&self, guard: SuccessionGuard) -> bool {
        self.without != Some(guard)
    }

    fn following_steps(
        &self,
        state: &SuccessionState,
        (at, of): (usize, usize),
        add: &mut dyn FnMut(SuccessionStep, SuccessionState),
    ) {
        let (site, leader) = (&state.sites[at], &state.sites[of]);
        let with = |change: &dyn Fn(&mut SuccessionState, &mut FederationCopy)| {
            let mut after = state.clone();
            let mut site = after.sites[at].clone();
            change(&mut after, &mut site);
            after.sites[at] = site;
            after
        };
        let (own, theirs) = (&site.history, &leader.history);
        let is_known = own.last().is_none_or(|last| theirs.get(own.len() - 1) == Some(last));
        let is_same = is_known || !self.has(SuccessionGuard::ChecksHistory);
        let is_later = leader.generation >= site.generation;
        let may_follow = is_same && (is_later || !self.has(SuccessionGuard::ChecksGeneration));
        match (site.copied, theirs.get(own.len())) {
            (None, Some(next)) if may_follow => {
                let copied = Some((*next, leader.generation, false));
                add(SuccessionStep::Copy(at), with(&|_, site| site.copied = copied));
            }
            (Some((number, generation, is_durable)), _) => {
                if !is_durable {
                    let synced = Some((number, generation, true));
                    let synced = with(&|_, site| {
                        site.copied = synced;
                        site.durable |= 1 << number;
                    });
                    add(SuccessionStep::Sync(at), synced);
                }
                if is_durable || !self.has(SuccessionGuard::BytesFirst) {
                    let applied = with(&|after, site| {
                        site.copied = None;
                        site.history.push(number);
                        after.has_gone_back |= generation < site.generation;
                        site.generation = generation;
                    });
                    add(SuccessionStep::Apply(at), applied);
                }
            }
            _ => {}
        }
    }

    fn promotion_steps(
        &self,
        state: &SuccessionState,
        (at, of): (usize, usize),
        add: &mut dyn FnMut(SuccessionStep, SuccessionState),
    ) {
        let site = &state.sites[at];
        let with = |change: &dyn Fn(&mut SuccessionState, &mut FederationCopy)| {
            let mut after = state.clone();
            let mut site = after.sites[at].clone();
            change(&mut after, &mut site);
            after.sites[at] = site;
            after
        };
        let lead = |site: &mut FederationCopy, generation: u8| {
            (site.role, site.generation) = (SiteRole::Leads, generation);
            (site.phase, site.copied) = (PromotionPhase::None, None);
        };
        match site.phase {
            PromotionPhase::None => {
                let generation = site.generation + 1;
                if generation > GENERATIONS_MAX || state.forced.is_some() {
                    return;
                }
                let begun = with(&|_, site| site.phase = PromotionPhase::Begun(generation));
                add(SuccessionStep::Promote(at), begun);
                let is_quiet = state.sites.iter().all(|site| site.phase == PromotionPhase::None);
                // A leader that has yielded has been notified, and another copy may be about to lead.
                let leader = &state.sites[of];
                let has_seen = leader.generation <= site.generation;
                if self.is_forced && is_quiet && has_seen && leader.role == SiteRole::Leads {
                    let forced = with(&|after, site| {
                        lead(site, generation);
                        site.untold = Some(of);
                        after.forced = Some(at);
                    });
                    add(SuccessionStep::Force(at), forced);
                }
            }
            PromotionPhase::Begun(generation) => {
                let mut after = state.clone();
                let yielded = self.yield_to(&mut after.sites[of], (generation, at));
                after.sites[at].phase = match yielded {
                    Some(last) => PromotionPhase::Yielded(generation, last),
                    None => PromotionPhase::None,
                };
                add(SuccessionStep::Yield(at), after);
                if !self.has(SuccessionGuard::Yields) {
                    add(SuccessionStep::Lead(at), with(&|_, site| lead(site, generation)));
                }
            }
            PromotionPhase::Yielded(generation, last) => {
                let has_all = site.history.len() >= usize::from(last);
                if has_all || !self.has(SuccessionGuard::TakesAll) {
                    add(SuccessionStep::Lead(at), with(&|_, site| lead(site, generation)));
                }
            }
        }
    }

    /// Makes a site yield to a promotion; returns the number of its commits, or `None` if it refuses.
    fn yield_to(
        &self,
        site: &mut FederationCopy,
        (generation, promotion): (u8, usize),
    ) -> Option<u8> {
        if matches!(site.role, SiteRole::Follows(_)) {
            return None;
        }
        let before = site.successor.map_or(site.generation, |(generation, _)| generation);
        let is_same = site.successor.is_some_and(|(_, known)| known == promotion);
        let is_again = is_same || !self.has(SuccessionGuard::KnowsPromotion);
        if generation <= before && !(is_again && generation > site.generation) {
            return None;
        }
        (site.role, site.successor) = (SiteRole::Yielded, Some((generation, promotion)));
        Some(site.history.len() as u8)
    }

    fn leader_steps(
        &self,
        state: &SuccessionState,
        at: usize,
        add: &mut dyn FnMut(SuccessionStep, SuccessionState),
    ) {
        let site = &state.sites[at];
        let mut after = state.clone();
        if site.role == SiteRole::Leads && state.before.len() < COMMITS_MAX {
            let number = state.before.len() as u8;
            after.before.push((site.history.last().copied(), at));
            after.sites[at].history.push(number);
            after.sites[at].durable |= 1 << number;
            add(SuccessionStep::Commit(at), after.clone());
        }
        after.clone_from(state);
        if let (SiteRole::Leads, Some(former)) = (site.role, site.untold) {
            // The promotion, and the generation that it has begun.
            if self.yield_to(&mut after.sites[former], (site.generation, at)).is_some() {
                after.sites[at].untold = None;
                after.forced = None;
                add(SuccessionStep::Tell(at), after.clone());
            }
        }
        after.clone_from(state);
        if let (SiteRole::Yielded, Some((generation, _))) = (site.role, site.successor) {
            let is_incomplete = state.sites.iter().all(|other| other.generation < generation);
            let is_over = state.sites.iter().all(|other| other.phase == PromotionPhase::None);
            if !is_incomplete || !(is_over || self.is_forced) {
                return;
            }
            let again = if self.has(SuccessionGuard::LeadsLaterAgain) {
                generation + 1
            } else {
                site.generation
            };
            if !is_over {
                after.forced = Some(at);
            }
            let site = &mut after.sites[at];
            (site.role, site.generation, site.successor) = (SiteRole::Leads, again, None);
            if again <= GENERATIONS_MAX {
                add(SuccessionStep::LeadAgain(at), after);
            }
        }
    }
}

impl Model for Succession {
    type State = SuccessionState;
    type Transition = SuccessionStep;

    fn beginning(&self) -> SuccessionState {
        let leader = FederationCopy {
            role: SiteRole::Leads,
            generation: 0,
            successor: None,
            history: vec![],
            durable: 0,
            copied: None,
            phase: PromotionPhase::None,
            untold: None,
        };
        let copy = FederationCopy { role: SiteRole::Follows(0), ..leader.clone() };
        SuccessionState {
            sites: [leader, copy.clone(), copy],
            before: vec![],
            forced: None,
            ends: 1,
            has_gone_back: false,
        }
    }

    fn steps(&self, state: &SuccessionState, add: &mut dyn FnMut(SuccessionStep, SuccessionState)) {
        for at in 0..SITES {
            self.leader_steps(state, at, add);
            let site = &state.sites[at];
            if let SiteRole::Follows(of) = site.role {
                self.following_steps(state, (at, of), add);
                self.promotion_steps(state, (at, of), add);
                for other in 0..SITES {
                    let is_leader = state.sites[other].role == SiteRole::Leads;
                    if other != of && is_leader && site.phase == PromotionPhase::None {
                        let mut after = state.clone();
                        after.sites[at].role = SiteRole::Follows(other);
                        after.sites[at].copied = None;
                        add(SuccessionStep::Follow(at, other), after);
                    }
                }
            }
            if state.ends > 0 {
                let mut after = state.clone();
                after.ends -= 1;
                after.sites[at].copied = None;
                after.sites[at].phase = PromotionPhase::None;
                // No other site has the bytes of a row that was published before them.
                add(SuccessionStep::End(at), after);
            }
        }
    }

    fn violated(&self, state: &SuccessionState) -> Option<&'static str> {
        for (at, site) in state.sites.iter().enumerate() {
            if site.history.iter().any(|number| site.durable & 1 << number == 0) {
                return Some("7: a follower publishes rows after their bytes are durable");
            }
            for (place, number) in site.history.iter().enumerate() {
                let before = place.checked_sub(1).map(|place| site.history[place]);
                if state.before[usize::from(*number)].0 != before {
                    return Some("7: a follower has the history of its leader");
                }
            }
            for other in &state.sites[..at] {
                let both_lead = site.role == SiteRole::Leads && other.role == SiteRole::Leads;
                if both_lead && site.generation == other.generation {
                    return Some("7: one leader of each generation takes changes");
                }
                if both_lead && !self.is_forced {
                    return Some("7: one leader takes changes");
                }
            }
            let has_all = site.history.len() == state.before.len();
            if !self.is_forced && site.role == SiteRole::Leads && !has_all {
                return Some("7: a leader has all acknowledged commits");
            }
        }
        state.has_gone_back.then_some("7: a follower does not go back to an earlier generation")
    }

    fn reached(&self, state: &SuccessionState, note: &mut dyn FnMut(&'static str)) {
        let leads = |site: &FederationCopy| site.role == SiteRole::Leads;
        for (at, site) in state.sites.iter().enumerate() {
            match (leads(site), site.generation) {
                (true, 1) if at == 1 && site.history.len() == COMMITS_MAX => note("promoted"),
                (true, 2..) if at == 0 => note("leads again"),
                (true, 2..) if at == 2 => note("promoted after another copy"),
                _ => {}
            }
        }
        if state.sites.iter().filter(|site| leads(site)).count() == 2 {
            note("two leaders");
        }
    }
}
