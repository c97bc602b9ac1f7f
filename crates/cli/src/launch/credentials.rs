//! The credentials of a run for memory nodes, while it goes on. The program's processes read their files again by
//! themselves; the launcher reads them too, because it alone can report what is wrong with them.

use crate::error::complain;
use hinterland_tls::{Calendar, ClientCredentials, LOOK_EVERY, Look, Side};
use std::io;
use std::thread::Builder;
use std::time::SystemTime;

/// A run's certificates and keys, and what was said of them.
pub struct Watched {
    credentials: ClientCredentials,
    calendar: Calendar,
}

impl Watched {
    /// Says what is wrong with the certificates now.
    pub fn begin(credentials: ClientCredentials) -> Watched {
        let mut watched = Watched { credentials, calendar: Calendar::default() };
        watched.tell();
        watched
    }

    /// Says what is wrong from now on, for as long as the launcher lives.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn follow(mut self) -> io::Result<()> {
        let work = move || {
            loop {
                std::thread::sleep(LOOK_EVERY);
                if let Look::Refused(error) = self.credentials.look(LOOK_EVERY) {
                    complain(format_args!("warning: {error}; what was read before stays in use"));
                }
                self.tell();
            }
        };
        Builder::new().name("credentials".into()).spawn(work)?;
        Ok(())
    }

    fn tell(&mut self) {
        for warning in self.calendar.news(&self.credentials.certificates(), SystemTime::now(), Side::Program) {
            complain(format_args!("warning: {warning}"));
        }
    }
}
