//! The macro that makes a row of the ledger, and its snapshot, from the lines of a table.

/// The name in the JSON: the field's own, unless another one is written.
macro_rules! json_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident, $json:literal) => {
        $json
    };
}
pub(super) use json_name;

/// The field that keeps a peak, if there is one.
macro_rules! peak_name {
    () => {
        None
    };
    ($peak:ident) => {
        Some(stringify!($peak))
    };
}
pub(super) use peak_name;

/// What is read of a row's statistics of one kind.
macro_rules! figures {
    ($(#[$doc:meta])* $name:ident, $added:ident { $($field:ident, $unit:ident, $json:expr, $peak:expr, $meaning:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name { $(#[doc = $meaning] pub $field: u64,)* }

        impl $name {
            /// What its fields are.
            pub const STATISTICS: &'static [Statistic] = &[$(Statistic {
                name: stringify!($field),
                json: $json,
                peak: $peak,
                unit: Unit::$unit,
                added: Added::$added,
                meaning: $meaning,
            },)*];

            /// Each field, and what it is.
            pub fn figures(&self) -> Vec<(&'static Statistic, u64)> {
                let values: &[u64] = &[$(self.$field),*];
                $name::STATISTICS.iter().zip(values.iter().copied()).collect()
            }

            /// Combines each field with `other`'s: `u64::saturating_add` sums, `u64::max` keeps the larger.
            pub fn combine(&mut self, other: &$name, with: impl Fn(u64, u64) -> u64) {
                let _ = (other, &with);
                $(self.$field = with(self.$field, other.$field);)*
            }
        }
    };
}
pub(super) use figures;

/// Declares the row, with the statistics of each group side by side, and what is read of it.
///
/// A line: `name: Unit = "meaning";`, or `name: Unit => "name in the JSON" = "meaning";`. A gauge whose row keeps the most that it has
/// been names that field, too: `name (peak): Unit = …`. Sections, in this order, each of them optional: `gauges` (what rises and
/// falls), `peaks` (gauges of which the row has nothing but the most that they have been), `sums`, `maxima`, `principal` (said of the
/// process with the most managed memory), `own` (said of each process alone), `histograms`.
macro_rules! statistics {
    (
        $(#[$row_doc:meta])*
        row $row:ident;
        head { $($(#[$head_doc:meta])* $head:ident: $head_type:ty,)* }
        $(group $group:ident = $group_doc:literal {
            $(gauges { $($gauge:ident $(($gauge_peak:ident))?: $gauge_unit:ident $(=> $gauge_json:literal)? = $gauge_doc:literal;)* })?
            $(peaks { $($peak:ident ($peak_field:ident): $peak_unit:ident $(=> $peak_json:literal)? = $peak_doc:literal;)* })?
            $(sums { $($sum:ident: $sum_unit:ident $(=> $sum_json:literal)? = $sum_doc:literal;)* })?
            $(maxima { $($max:ident: $max_unit:ident $(=> $max_json:literal)? = $max_doc:literal;)* })?
            $(principal { $($one:ident: $one_unit:ident $(=> $one_json:literal)? = $one_doc:literal;)* })?
            $(own { $($own:ident: $own_unit:ident $(=> $own_json:literal)? = $own_doc:literal;)* })?
            $(histograms { $($histogram:ident: $histogram_unit:ident = $histogram_doc:literal;)* })?
        })*
        tail { $($(#[$tail_doc:meta])* $tail:ident: $tail_type:ty,)* }
    ) => {
        $(#[$row_doc])*
        #[repr(C)]
        pub struct $row {
            $($(#[$head_doc])* pub $head: $head_type,)*
            $(
                #[doc = $group_doc]
                pub $group: CacheLine,
                $($(
                    #[doc = $gauge_doc]
                    pub $gauge: Counter,
                    $(
                        #[doc = concat!("The most that `", stringify!($gauge), "` has been.")]
                        pub $gauge_peak: Counter,
                    )?
                )*)?
                $($(#[doc = concat!("The most that this has been: ", $peak_doc)] pub $peak_field: Counter,)*)?
                $($(#[doc = $sum_doc] pub $sum: Counter,)*)?
                $($(#[doc = $max_doc] pub $max: Counter,)*)?
                $($(#[doc = $one_doc] pub $one: Counter,)*)?
                $($(#[doc = $own_doc] pub $own: Counter,)*)?
                $($(#[doc = $histogram_doc] pub $histogram: [Counter; $crate::FAULT_BUCKETS],)*)?
            )*
            $($(#[$tail_doc])* pub $tail: $tail_type,)*
        }

        figures! {
            /// What only grows.
            Counters, Sum { $($($($sum, $sum_unit, json_name!($sum $(, $sum_json)?), None, $sum_doc;)*)?)* }
        }

        figures! {
            /// What rises and falls: now, or the most that it has been.
            Gauges, Peak {
                $(
                    $($($gauge, $gauge_unit, json_name!($gauge $(, $gauge_json)?), peak_name!($($gauge_peak)?), $gauge_doc;)*)?
                    $($($peak, $peak_unit, json_name!($peak $(, $peak_json)?), peak_name!($peak_field), $peak_doc;)*)?
                )*
            }
        }

        figures! {
            /// What the largest of any process says.
            Maxima, Largest { $($($($max, $max_unit, json_name!($max $(, $max_json)?), None, $max_doc;)*)?)* }
        }

        figures! {
            /// What the process with the most managed memory says.
            Principal, Principal { $($($($one, $one_unit, json_name!($one $(, $one_json)?), None, $one_doc;)*)?)* }
        }

        figures! {
            /// What each process says of itself.
            Own, Never { $($($($own, $own_unit, json_name!($own $(, $own_json)?), None, $own_doc;)*)?)* }
        }

        /// Histograms, by [`bucket_of`](crate::bucket_of).
        #[derive(Clone, PartialEq, Eq, Debug, Default)]
        pub struct Histograms { $($($(#[doc = $histogram_doc] pub $histogram: Vec<u64>,)*)?)* }

        impl Histograms {
            /// What its fields are.
            pub const STATISTICS: &'static [Statistic] = &[$($($(Statistic {
                name: stringify!($histogram),
                json: stringify!($histogram),
                peak: None,
                unit: Unit::$histogram_unit,
                added: Added::Histogram,
                meaning: $histogram_doc,
            },)*)?)*];

            /// Adds those of another process.
            pub fn add(&mut self, other: &Histograms) {
                let _ = other;
                let pairs: &mut [(&mut Vec<u64>, &Vec<u64>)] = &mut [$($($((&mut self.$histogram, &other.$histogram),)*)?)*];
                for (sums, counts) in pairs {
                    sums.resize(sums.len().max(counts.len()), 0);
                    sums.iter_mut().zip(counts.iter()).for_each(|(sum, count)| *sum += count);
                }
            }
        }

        impl $row {
            /// What only grows.
            pub fn counters(&self) -> Counters {
                Counters { $($($($sum: self.$sum.load(Relaxed),)*)?)* }
            }

            /// What rises and falls, now; 0 where the row has nothing but the most that it has been.
            pub fn gauges(&self) -> Gauges {
                Gauges { $($($($gauge: self.$gauge.load(Relaxed),)*)? $($($peak: 0,)*)?)* }
            }

            /// The most that each gauge has been; 0 where the row does not keep it.
            pub fn peaks(&self) -> Gauges {
                Gauges {
                    $(
                        $($($gauge: 0 $(+ self.$gauge_peak.load(Relaxed))?,)*)?
                        $($($peak: self.$peak_field.load(Relaxed),)*)?
                    )*
                }
            }

            /// What the largest of any process says.
            pub fn maxima(&self) -> Maxima {
                Maxima { $($($($max: self.$max.load(Relaxed),)*)?)* }
            }

            /// What the process with the most managed memory says.
            pub fn principal(&self) -> Principal {
                Principal { $($($($one: self.$one.load(Relaxed),)*)?)* }
            }

            /// What each process says of itself.
            pub fn own(&self) -> Own {
                Own { $($($($own: self.$own.load(Relaxed),)*)?)* }
            }

            /// The histograms.
            pub fn histograms(&self) -> Histograms {
                Histograms { $($($($histogram: self.$histogram.iter().map(|bucket| bucket.load(Relaxed)).collect(),)*)?)* }
            }
        }

        /// The groups, and where each of their words lies.
        #[cfg(test)]
        pub const GROUPS: &[(usize, &[usize])] = &[$((
            std::mem::offset_of!($row, $group),
            &[
                $($(
                    std::mem::offset_of!($row, $gauge),
                    $(std::mem::offset_of!($row, $gauge_peak),)?
                )*)?
                $($(std::mem::offset_of!($row, $peak_field),)*)?
                $($(std::mem::offset_of!($row, $sum),)*)?
                $($(std::mem::offset_of!($row, $max),)*)?
                $($(std::mem::offset_of!($row, $one),)*)?
                $($(std::mem::offset_of!($row, $own),)*)?
                $($(std::mem::offset_of!($row, $histogram) + size_of::<[Counter; $crate::FAULT_BUCKETS]>() - size_of::<Counter>(),)*)?
            ],
        ),)*];
    };
}
pub(super) use statistics;
