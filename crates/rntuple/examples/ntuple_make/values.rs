//! Random values of any type, edge cases among them. Real numbers of less than double precision are
//! drawn so that writing them changes nothing, except where the column itself is lossy.

use rntuple::{Precision, Primitive, Type, Value};

const TEXTS: [&str; 8] = [
    "",
    "a",
    "Higgs",
    "naïve ünïcode ✓ 𝄞",
    "quote \" and \\",
    "tab\tnew\nline",
    "nul\0inside",
    "a rather long text that takes more than a small page has room for, and then some",
];
const REALS: [f64; 9] =
    [0.0, -0.0, 1.0, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 3.25e10, -7.5e-9];
const ITEMS_MAX: u64 = 5;

/// A generator of numbers (SplitMix64); the same seed gives the same numbers.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Evenly between two numbers.
    fn between(&mut self, low: f64, high: f64) -> f64 {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        (low + unit * (high - low)).clamp(low, high)
    }

    /// A value of any type.
    pub(crate) fn value(&mut self, of: &Type) -> Value {
        match of {
            Type::Primitive(primitive) => self.number(*primitive),
            Type::Reduced(_, precision) => Value::Float(self.reduced(*precision)),
            Type::String => Value::String(TEXTS[self.below(TEXTS.len() as u64) as usize].into()),
            Type::List(item) => {
                let size = self.below(3) * self.below(ITEMS_MAX) / 2;
                self.list(item, size)
            }
            Type::Array { item, size } => self.list(item, *size),
            Type::Bitset { size } => self.list(&Type::Primitive(Primitive::Bool), *size),
            Type::Optional(_) if self.below(3) == 0 => Value::Null,
            Type::Optional(item) => self.value(item),
            Type::Record { members, .. } => self.record(members),
            Type::Variant(_) if self.below(8) == 0 => Value::Null,
            Type::Variant(alternatives) => {
                let chosen = self.below(alternatives.len() as u64) as usize;
                Value::Variant(chosen, self.value(&alternatives[chosen]).into())
            }
            Type::Cardinality(_) => unreachable!("cardinalities are not written"),
        }
    }

    /// A record of these members.
    pub(crate) fn record(&mut self, members: &[(String, Type)]) -> Value {
        Value::Record(members.iter().map(|(name, of)| (name.clone(), self.value(of))).collect())
    }

    /// A list of this many items; lists of bytes are [`Value::Bytes`].
    pub(crate) fn list(&mut self, item: &Type, size: u64) -> Value {
        match item {
            Type::Primitive(Primitive::Byte | Primitive::UInt8) => {
                Value::Bytes((0..size).map(|_| self.next() as u8).collect())
            }
            _ => Value::List((0..size).map(|_| self.value(item)).collect()),
        }
    }

    fn number(&mut self, of: Primitive) -> Value {
        match (of, of.integer_range()) {
            (Primitive::Bool, _) => Value::Bool(self.below(2) == 1),
            (_, Some(range)) => {
                let (least, most) = range.into_inner();
                let any = least + i128::from(self.next()) % (most - least + 1);
                let value =
                    [least, most, 0.max(least), most - 1, any, any, any][self.below(7) as usize];
                match u64::try_from(value) {
                    Ok(value) if least == 0 => Value::UInt(value),
                    _ => Value::Int(value as i64),
                }
            }
            (Primitive::Float32, _) => Value::Float(f64::from(self.real() as f32)),
            _ => Value::Float(self.real()),
        }
    }

    fn real(&mut self) -> f64 {
        match self.below(3) {
            0 => REALS[self.below(REALS.len() as u64) as usize],
            1 => self.between(-1.0, 1.0),
            _ => self.between(-1e6, 1e6),
        }
    }

    fn reduced(&mut self, precision: Precision) -> f64 {
        match precision {
            Precision::Single => f64::from(self.real() as f32),
            Precision::Half => self.between(-60_000.0, 60_000.0),
            Precision::Truncated { .. } => match self.real() {
                // A truncated value must not round to infinity when it becomes single precision.
                value if value.is_finite() => f64::from(value as f32),
                value => value,
            },
            Precision::Quantised { min, max, .. } => match self.below(5) {
                0 => min,
                1 => max,
                _ => self.between(min, max),
            },
        }
    }
}
