//! What was measured of programs: for each kind of far memory, how slow they are with how much local memory, and what goes over the path then.

use super::fleet::Limits;
use serde::Deserialize;

/// The version of such files.
const VERSION: u64 = 1;
/// A program is friendly if its best backend keeps this slowdown with at most this part of the memory local.
const FRIENDLY_SLOWDOWN: f64 = 1.4;
const FRIENDLY_LOCAL_PERCENT: f64 = 50.0;
/// Far memory of a machine at most, in GiB: 1 ZiB, which as MiB fits in 64 bits with all that is added to it.
const CAPACITY_GIB_MAX: u64 = 1 << 40;

/// Programs and the far memory that they were measured with.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Programs {
    version: u64,
    /// Kinds of far memory.
    pub backends: Vec<Backend>,
    /// In the order of the file.
    pub programs: Vec<Program>,
}

/// One kind of far memory.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Backend {
    /// What points call it.
    pub name: String,
    /// What the path of a machine carries, at least 1.
    pub bytes_per_second: f64,
    /// What a machine has of it, in GiB: from 1 to [`CAPACITY_GIB_MAX`].
    pub capacity_gib: u64,
    /// Local memory that a byte of it takes: compressed pages stay in the machine.
    pub local_bytes_per_byte: f64,
}

/// One program.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Program {
    /// What figures call it.
    pub name: String,
    /// Memory that it touches.
    pub touched_bytes: u64,
    /// With all of it local.
    pub cpu_seconds: f64,
    /// Measured combinations.
    pub points: Vec<Point>,
}

/// How a program does with less local memory.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Point {
    /// A backend's name.
    pub backend: String,
    /// Local memory, of what is touched.
    pub local_percent: f64,
    /// Run time over that with all memory local.
    pub slowdown: f64,
    /// Over the path, both directions, while the program runs.
    pub far_bytes_per_second: f64,
}

impl Program {
    /// The measured points that keep a slowdown.
    pub fn keeping(&self, backend: &str, slowdown: f64) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(move |point| point.backend == backend && point.slowdown <= slowdown)
    }

    /// Whether much of its memory may be far, on any of the backends that it was measured with: also on those that are left out, so that a mix of
    /// programs is the same whichever backends there are.
    pub fn is_friendly(&self) -> bool {
        let keeps =
            |point: &Point| point.slowdown <= FRIENDLY_SLOWDOWN && point.local_percent <= FRIENDLY_LOCAL_PERCENT;
        self.points.iter().any(keeps)
    }
}

impl Programs {
    /// Reads such a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Programs, String> {
        let read: Programs = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if read.version != VERSION {
            return Err(format!("version {} of programs is not known, {VERSION} is", read.version));
        }
        if read.backends.is_empty() || read.programs.is_empty() {
            return Err("no backend, or no program".into());
        }
        for (at, backend) in read.backends.iter().enumerate() {
            let Backend { name, bytes_per_second, capacity_gib, local_bytes_per_byte } = backend;
            let bad = |why: &str| Err(format!("backend '{name}': {why}"));
            if !((1.0..1e15).contains(bytes_per_second) && (0.0..1.0).contains(local_bytes_per_byte)) {
                return bad("its path carries a byte a second or more, and it takes less memory than it has");
            }
            if !(1..=CAPACITY_GIB_MAX).contains(capacity_gib) {
                return bad(&format!("its capacity is 1 to {CAPACITY_GIB_MAX} GiB, not {capacity_gib}"));
            }
            if read.backends[..at].iter().any(|other| other.name == *name) {
                return bad("it comes twice");
            }
        }
        for program in &read.programs {
            let bad = |why: &str| Err(format!("program '{}': {why}", program.name));
            if program.touched_bytes == 0 || !(program.cpu_seconds > 0.0 && program.cpu_seconds < 1e9) {
                return bad("no memory, or no run time");
            }
            for point in &program.points {
                if !read.backends.iter().any(|backend| backend.name == point.backend) {
                    return bad(&format!("there is no backend '{}'", point.backend));
                }
                let is_good = point.local_percent > 0.0
                    && point.local_percent <= 100.0
                    && (0.5..1e6).contains(&point.slowdown)
                    && (0.0..1e15).contains(&point.far_bytes_per_second);
                if !is_good {
                    return bad(&format!("a point that cannot be: {point:?}"));
                }
            }
        }
        Ok(read)
    }

    /// What a machine has of each kind of far memory.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the file was checked")]
    pub fn limits(&self) -> Vec<Limits> {
        let of = |backend: &Backend| Limits {
            far_mib: backend.capacity_gib << 10,
            bytes_per_second: backend.bytes_per_second as u64,
        };
        self.backends.iter().map(of).collect()
    }

    /// Leaves these kinds of far memory only.
    ///
    /// # Errors
    /// A name that is not there.
    pub fn with_backends(mut self, names: &[String]) -> Result<Programs, String> {
        if let Some(name) = names.iter().find(|name| !self.backends.iter().any(|backend| backend.name == **name)) {
            let known: Vec<&str> = self.backends.iter().map(|backend| backend.name.as_str()).collect();
            return Err(format!("'{name}' is no backend; take some of {}", known.join(", ")));
        }
        self.backends.retain(|backend| names.contains(&backend.name));
        Ok(self)
    }
}
