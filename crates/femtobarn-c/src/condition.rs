//! Conditions that are joined by `and`: each compares a field with a constant.
//!
//! A field is a number or text outside collections, such as `run` or `MET.pt`, or the size of a collection, such as
//! `tracks.#`. Numbers compare exactly, whatever their types are. Missing values, and NaN but for `!=`, meet no condition.
//! Clusters whose statistics exclude a match are not read.

use std::cmp::Ordering;
use std::ffi::c_char;
use std::ops::Range;

use femtobarn::{ClusterBounds, Result, View};
use rntuple::{Array, Bound, Primitive, values_of};

use crate::argument::{list, text};
use crate::status::invalid;

/// A condition as C has it: `fb_condition`.
#[repr(C)]
pub struct CCondition {
    /// The field.
    pub path: *const c_char,
    /// How they compare: a constant of the header.
    pub comparison: i32,
    /// Which value is set: a constant of the header.
    pub kind: i32,
    /// The constant.
    pub value: CConstant,
}

/// A constant as C has it.
#[repr(C)]
#[derive(Clone, Copy)]
pub union CConstant {
    /// `FB_INTEGER`.
    pub integer: i64,
    /// `FB_UNSIGNED`.
    pub unsigned_integer: u64,
    /// `FB_REAL`.
    pub real: f64,
    /// `FB_TEXT`.
    pub text: *const c_char,
}

/// Conditions that all must hold.
#[derive(Clone)]
pub(crate) struct FieldConditions(Vec<FieldComparison>);

#[derive(Clone)]
struct FieldComparison {
    path: String,
    sign: Sign,
    constant: ComparedConstant,
}

/// In the order of the header.
#[derive(Clone, Copy, PartialEq)]
enum Sign {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
}

#[derive(Clone)]
enum ComparedConstant {
    Integer(i128),
    Real(f64),
    Text(String),
}

impl Sign {
    fn of(number: i32) -> Result<Self> {
        use Sign::*;
        let all = [Less, LessEqual, Greater, GreaterEqual, Equal, NotEqual];
        let known = usize::try_from(number).ok().and_then(|at| all.get(at));
        known.copied().ok_or_else(|| invalid(format!("unknown comparison {number}")))
    }

    /// Whether values in this order meet it; values that cannot be ordered are not equal.
    fn admits(self, order: Option<Ordering>) -> bool {
        match (self, order) {
            (Sign::NotEqual, order) => order != Some(Ordering::Equal),
            (_, None) => false,
            (Sign::Less, Some(order)) => order.is_lt(),
            (Sign::LessEqual, Some(order)) => order.is_le(),
            (Sign::Greater, Some(order)) => order.is_gt(),
            (Sign::GreaterEqual, Some(order)) => order.is_ge(),
            (Sign::Equal, Some(order)) => order.is_eq(),
        }
    }
}

/// Entries that statistics do not exclude, and the places of those that meet the conditions among their objects.
type MatchedPart = (Range<u64>, Vec<Range<usize>>);

impl FieldConditions {
    /// Conditions on the fields of a view. They are checked against all fields, also those that statistics exclude.
    ///
    /// # Errors
    /// `Invalid` if a constant of the header is unknown, a text is NULL or not UTF-8, or a field cannot be compared
    /// with the value; `NotFound` if a field does not exist.
    ///
    /// # Safety
    /// `conditions` is NULL or has `count` conditions, whose texts are NULL or end with NUL.
    pub(crate) unsafe fn of(
        view: &View,
        conditions: *const CCondition,
        count: usize,
    ) -> Result<Self> {
        // SAFETY: the caller's.
        let given = unsafe { list("conditions", conditions, count) }?;
        let comparison = |given: &CCondition| {
            // SAFETY: the caller's.
            let path = unsafe { text("path of a condition", given.path) }?.to_owned();
            // SAFETY: any eight bytes are a number; the text is the caller's.
            let constant = unsafe {
                match given.kind {
                    0 => ComparedConstant::Integer(given.value.integer.into()),
                    1 => ComparedConstant::Integer(given.value.unsigned_integer.into()),
                    2 => ComparedConstant::Real(given.value.real),
                    3 => {
                        let value = text("text of a condition", given.value.text)?;
                        ComparedConstant::Text(value.to_owned())
                    }
                    other => return Err(invalid(format!("unknown kind of constant {other}"))),
                }
            };
            Ok(FieldComparison { path, sign: Sign::of(given.comparison)?, constant })
        };
        let conditions = FieldConditions(given.iter().map(comparison).collect::<Result<_>>()?);
        if !conditions.is_empty() {
            conditions.mask(view, 0..0)?;
        }
        Ok(conditions)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The places of objects that meet the conditions among the objects of a range of entries that are not deleted.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn matches(&self, view: &View, entries: Range<u64>) -> Result<Vec<Range<usize>>> {
        let live = view.live_runs(entries.clone())?;
        let mut matches: Vec<Range<usize>> = vec![];
        // Objects before the candidates, and the next run of live entries.
        let (mut before, mut runs) = (0_usize, live.iter().cloned().peekable());
        for candidates in self.candidates(view, entries)? {
            while let Some(run) = runs.next_if(|run| run.end <= candidates.start) {
                before += (run.end - run.start) as usize;
            }
            let skipped = runs.peek().map_or(0, |run| candidates.start.saturating_sub(run.start));
            let first = before + skipped as usize;
            for place in true_runs(&self.mask(view, candidates)?) {
                let (start, end) = (first + place.start, first + place.end);
                match matches.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => matches.push(start..end),
                }
            }
        }
        Ok(matches)
    }

    /// Ranges of entries with matches, and the places of these among the objects of their range.
    ///
    /// # Errors
    /// The errors of [`matches`](Self::matches).
    pub(crate) fn matches_by_candidates(
        &self,
        view: &View,
        entries: Range<u64>,
    ) -> Result<Vec<MatchedPart>> {
        let mut found = vec![];
        for candidates in self.candidates(view, entries)? {
            let places = true_runs(&self.mask(view, candidates.clone())?);
            if !places.is_empty() {
                found.push((candidates, places));
            }
        }
        Ok(found)
    }

    /// The entries of a range that statistics do not exclude.
    fn candidates(&self, view: &View, entries: Range<u64>) -> Result<Vec<Range<u64>>> {
        let mut left = vec![entries.clone()];
        for comparison in &self.0 {
            let clusters = view.statistics(&comparison.path)?;
            // Only clusters of the range: a stream asks for one cluster after the other.
            let first = clusters.partition_point(|it| it.first_entry + it.entries <= entries.start);
            let near = clusters[first..].iter().take_while(|it| it.first_entry < entries.end);
            let excluded = near.filter(|cluster| !comparison.may_hold(cluster));
            for cluster in excluded {
                let gap = cluster.first_entry..cluster.first_entry + cluster.entries;
                left = left.into_iter().flat_map(|part| without(part, &gap)).collect();
            }
        }
        Ok(left)
    }

    /// Whether each object of a range of entries meets all conditions.
    fn mask(&self, view: &View, entries: Range<u64>) -> Result<Vec<bool>> {
        let paths: Vec<&str> = self.0.iter().map(|comparison| &*comparison.path).collect();
        let columns = view.read(&view.select(&paths)?, entries)?;
        let mut mask = vec![true; columns.len()];
        self.0.iter().try_for_each(|comparison| comparison.narrow(&columns, &mut mask))?;
        Ok(mask)
    }
}

/// The parts of a range outside of another range.
fn without(part: Range<u64>, gap: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let before = part.start..part.end.min(gap.start);
    let behind = part.start.max(gap.end)..part.end;
    [before, behind].into_iter().filter(|range| !range.is_empty())
}

/// The runs of true values.
fn true_runs(mask: &[bool]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = vec![];
    for (place, _) in mask.iter().enumerate().filter(|(_, holds)| **holds) {
        match runs.last_mut() {
            Some(run) if run.end == place => run.end += 1,
            _ => runs.push(place..place + 1),
        }
    }
    runs
}

impl FieldComparison {
    /// Whether an object of a cluster can meet it. Bounds are compared in double precision, which rounds but keeps the
    /// order, so equal bounds admit everything.
    fn may_hold(&self, cluster: &ClusterBounds) -> bool {
        let Some(bounds) = cluster.bounds else { return true };
        let constant = match self.constant {
            ComparedConstant::Integer(value) => value as f64,
            ComparedConstant::Real(value) => value,
            ComparedConstant::Text(_) => return true,
        };
        let Some((least, most)) = bounds.range else {
            return bounds.has_nan && self.sign == Sign::NotEqual;
        };
        let (least, most) = (nearest(least), nearest(most));
        match self.sign {
            Sign::Less | Sign::LessEqual => least <= constant,
            Sign::Greater | Sign::GreaterEqual => most >= constant,
            Sign::Equal => least <= constant && constant <= most,
            Sign::NotEqual => true,
        }
    }

    /// Clears the places of a mask where the condition does not hold.
    fn narrow(&self, columns: &Array, mask: &mut [bool]) -> Result<()> {
        let (path, is_size) = match self.path.strip_suffix(".#") {
            Some(path) => (path, true),
            None => (&*self.path, false),
        };
        let found = path.split('.').try_fold(columns, |array, name| array.member(name));
        let column = found.ok_or_else(|| self.unfit("is inside a collection"))?;
        match column {
            Array::List { offsets, optional: false, .. } if is_size => {
                let offsets = values(offsets)?;
                self.compare(mask, |at| self.order_of_integer(i128::from(size_at(offsets, at))))
            }
            Array::List { offsets, content, optional: true } => {
                let offsets: &[i64] = values(offsets)?;
                let mut present = vec![true; content.len()];
                self.narrow_values(content, &mut present)?;
                self.compare_where(mask, |at| {
                    size_at(offsets, at) > 0 && present[offsets[at] as usize]
                })
            }
            column => self.narrow_values(column, mask),
        }
    }

    fn narrow_values(&self, column: &Array, mask: &mut [bool]) -> Result<()> {
        match (column, &self.constant) {
            (Array::String { offsets, bytes }, ComparedConstant::Text(text)) => {
                let offsets: &[i64] = values(offsets)?;
                let text = text.as_bytes();
                self.compare(mask, |at| {
                    Some(bytes[offsets[at] as usize..offsets[at + 1] as usize].cmp(text))
                })
            }
            (_, ComparedConstant::Text(_)) => Err(self.unfit("has no texts")),
            (Array::Primitive { primitive, values }, _) => {
                self.narrow_numbers(*primitive, values, mask)
            }
            _ => Err(self.unfit("has no single numbers")),
        }
    }

    fn narrow_numbers(&self, primitive: Primitive, bytes: &[u8], mask: &mut [bool]) -> Result<()> {
        macro_rules! integers {
            ($of:ty) => {{
                let numbers: &[$of] = values(bytes)?;
                self.compare(mask, |at| self.order_of_integer(numbers[at].into()))
            }};
        }
        macro_rules! reals {
            ($of:ty) => {{
                let numbers: &[$of] = values(bytes)?;
                self.compare(mask, |at| self.order_of_real(numbers[at].into()))
            }};
        }
        match primitive {
            Primitive::Bool | Primitive::Byte | Primitive::Char | Primitive::UInt8 => integers!(u8),
            Primitive::Int8 => integers!(i8),
            Primitive::Int16 => integers!(i16),
            Primitive::UInt16 => integers!(u16),
            Primitive::Int32 => integers!(i32),
            Primitive::UInt32 => integers!(u32),
            Primitive::Int64 => integers!(i64),
            Primitive::UInt64 => integers!(u64),
            Primitive::Float32 => reals!(f32),
            Primitive::Float64 => reals!(f64),
        }
    }

    fn compare(&self, mask: &mut [bool], order: impl Fn(usize) -> Option<Ordering>) -> Result<()> {
        self.compare_where(mask, |at| self.sign.admits(order(at)))
    }

    fn compare_where(&self, mask: &mut [bool], holds: impl Fn(usize) -> bool) -> Result<()> {
        mask.iter_mut().enumerate().for_each(|(at, kept)| *kept = *kept && holds(at));
        Ok(())
    }

    fn order_of_integer(&self, value: i128) -> Option<Ordering> {
        match self.constant {
            ComparedConstant::Integer(constant) => Some(value.cmp(&constant)),
            ComparedConstant::Real(constant) => order_of_mixed(value, constant),
            ComparedConstant::Text(_) => None,
        }
    }

    fn order_of_real(&self, value: f64) -> Option<Ordering> {
        match self.constant {
            ComparedConstant::Integer(constant) => {
                order_of_mixed(constant, value).map(Ordering::reverse)
            }
            ComparedConstant::Real(constant) => value.partial_cmp(&constant),
            ComparedConstant::Text(_) => None,
        }
    }

    fn unfit(&self, why: &str) -> femtobarn::Error {
        invalid(format!("the field {:?} of a condition {why}", self.path))
    }
}

/// The exact order of an integer and a real number. Integers here have at most 64 bits.
fn order_of_mixed(integer: i128, real: f64) -> Option<Ordering> {
    if real.is_nan() {
        return None;
    }
    // The conversion saturates, far outside 64 bits.
    let floor = real.floor();
    Some(match integer.cmp(&(floor as i128)) {
        Ordering::Equal if real > floor => Ordering::Less,
        order => order,
    })
}

fn nearest(bound: Bound) -> f64 {
    match bound {
        Bound::Int(value) => value as f64,
        Bound::UInt(value) => value as f64,
        Bound::Float(value) => value,
    }
}

fn size_at(offsets: &[i64], at: usize) -> i64 {
    offsets[at + 1] - offsets[at]
}

fn values<T: bytemuck::Pod>(bytes: &[u8]) -> Result<&[T]> {
    values_of(bytes).map_err(|error| invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_and_reals_compare_exactly() {
        let large = (1 << 53) + 1;
        assert_eq!(order_of_mixed(large, 9_007_199_254_740_992.0), Some(Ordering::Greater));
        assert_eq!(order_of_mixed(-3, -2.5), Some(Ordering::Less));
        assert_eq!(order_of_mixed(-2, -2.5), Some(Ordering::Greater));
        assert_eq!(order_of_mixed(7, f64::INFINITY), Some(Ordering::Less));
        assert_eq!(order_of_mixed(7, f64::NAN), None);
    }

    #[test]
    fn clusters_are_excluded_only_if_no_value_can_match() {
        let cluster = |range, has_nan| ClusterBounds {
            first_entry: 0,
            entries: 9,
            bounds: Some(rntuple::Bounds { range, has_nan }),
        };
        let numbers = cluster(Some((Bound::Int(-3), Bound::Int(5))), false);
        let holds = |sign, constant, cluster: &ClusterBounds| {
            let constant = ComparedConstant::Real(constant);
            FieldComparison { path: "n".to_owned(), sign, constant }.may_hold(cluster)
        };
        assert!(holds(Sign::Greater, 4.5, &numbers) && !holds(Sign::Greater, 5.5, &numbers));
        assert!(holds(Sign::Less, -2.5, &numbers) && !holds(Sign::LessEqual, -3.5, &numbers));
        assert!(holds(Sign::Equal, 0.0, &numbers) && !holds(Sign::Equal, 6.0, &numbers));
        assert!(holds(Sign::NotEqual, 6.0, &numbers));
        let nothing = cluster(None, true);
        assert!(!holds(Sign::Greater, 0.0, &nothing) && holds(Sign::NotEqual, 0.0, &nothing));
        let unknown = ClusterBounds { bounds: None, ..numbers };
        assert!(holds(Sign::Equal, 6.0, &unknown));
    }

    #[test]
    fn an_excluded_range_is_cut_out_of_a_range() {
        assert_eq!(without(0..10, &(3..5)).collect::<Vec<_>>(), [0..3, 5..10]);
        assert_eq!(without(3..5, &(0..10)).count(), 0);
        assert_eq!(without(3..5, &(5..9)).collect::<Vec<_>>(), [3..5]);
        assert_eq!(true_runs(&[true, true, false, true]), [0..2, 3..4]);
    }
}
