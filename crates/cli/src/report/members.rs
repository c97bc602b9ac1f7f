//! Members of the JSON: statistics under the names that their table says, and structs whose members say what they mean.

use hinterland_abi::statistics::{Statistic, Unit};
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::time::Duration;

/// Statistics, as members of the object that they are flattened into: name, what it is, figure.
pub struct Members(Vec<(&'static str, &'static Statistic, u64)>);

impl Members {
    /// Those whose place in the document is `place`: nothing for the document itself, else an object's name and a dot.
    pub fn at(place: &str, figures: Vec<(&'static Statistic, u64)>) -> Members {
        let here =
            |statistic: &'static Statistic| statistic.json.strip_prefix(place).filter(|name| !name.contains('.'));
        let members = figures.into_iter().filter_map(|(statistic, figure)| Some((here(statistic)?, statistic, figure)));
        Members(members.collect())
    }

    /// All of them, under the last part of their names.
    pub fn of(figures: Vec<(&'static Statistic, u64)>) -> Members {
        let name = |statistic: &Statistic| statistic.json.rsplit('.').next().unwrap_or(statistic.json);
        Members(figures.into_iter().map(|(statistic, figure)| (name(statistic), statistic, figure)).collect())
    }

    /// Peaks, under the names of the fields that keep them.
    pub fn peaks(figures: &[(&'static Statistic, u64)]) -> Members {
        Members(figures.iter().filter_map(|(statistic, figure)| Some((statistic.peak?, *statistic, *figure))).collect())
    }

    /// These, and others.
    pub fn and(mut self, others: Members) -> Members {
        self.0.extend(others.0);
        self
    }

    /// Each name, and what it is.
    #[cfg(test)]
    pub fn names(&self) -> impl Iterator<Item = (&'static str, &'static Statistic)> {
        self.0.iter().map(|(name, statistic, _)| (*name, *statistic))
    }
}

fn value(statistic: &Statistic, figure: u64) -> Value {
    match statistic.unit {
        Unit::Seconds => Duration::from_nanos(figure).as_secs_f64().into(),
        Unit::Flag => (figure != 0).into(),
        _ => figure.into(),
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, statistic, figure)| (name, value(statistic, *figure))))
    }
}

/// Makes a struct that is written as JSON, and `MEMBERS`: its members and what they mean; and, of their types, its schema.
macro_rules! documented {
    (
        $(#[$meta:meta])*
        pub struct $name:ident $(<$life:lifetime>)? {
            $($(#[doc = $doc:literal])+ $(#[serde($serde:ident)])? $vis:vis $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Serialize)]
        pub struct $name $(<$life>)? { $($(#[doc = $doc])+ $(#[serde($serde)])? $vis $field: $type,)* }

        #[cfg(test)]
        impl $(<$life>)? $name $(<$life>)? {
            /// Its members, and what they mean; not those that the table of statistics has.
            pub const MEMBERS: &'static [(&'static str, &'static str)] = &[$((stringify!($field), concat!($($doc),+)),)*];
        }

        #[cfg(test)]
        impl $(<$life>)? $crate::schema::Described for $name $(<$life>)? {
            fn schema() -> serde_json::Value {
                let mut object = $crate::schema::Object::default();
                $($crate::report::members::described!(object, Self, $field: $type, concat!($($doc),+) $(, $serde)?);)*
                object.schema()
            }
        }
    };
}
pub(crate) use documented;

/// Describes a member: one of its own, or all statistics that are flattened into it.
#[cfg(test)]
macro_rules! described {
    ($object:ident, $struct:ty, $field:ident: $type:ty, $meaning:expr) => {
        $object.own(stringify!($field), $meaning, <$type as $crate::schema::Described>::schema());
    };
    ($object:ident, $struct:ty, $field:ident: $type:ty, $meaning:expr, default) => {
        $crate::report::members::described!($object, $struct, $field: $type, $meaning);
    };
    ($object:ident, $struct:ty, $field:ident: $type:ty, $meaning:expr, flatten) => {
        $object.statistics(&<$struct as $crate::schema::Counted>::members());
    };
}
#[cfg(test)]
pub(crate) use described;
