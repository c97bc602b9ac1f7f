//! Looks up what a change of paths names: the addresses of nodes, and whether a directory can be written.
//!
//! A name server or a file system may keep its answer back for a long time. So it is asked in a thread of its own, and the launcher's loop goes on:
//! signals, ends of processes and other clients are served meanwhile.

use super::readiness;
use crate::config::FarNames;
use crate::control::{FarUrls, Request};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;

/// Look-ups at a time: threads that wait for a name server outlive the client that has given up.
const LOOK_UPS_MAX: usize = 16;

/// See the module.
#[derive(Default)]
pub struct LookUps(Arc<()>);

impl LookUps {
    /// Begins to look up what a request names.
    ///
    /// # Errors
    /// It is not looked up, for the user.
    pub fn begin(&self, names: FarNames, request: &Request) -> Result<Receiver<Result<FarUrls, String>>, String> {
        if Arc::strong_count(&self.0) > LOOK_UPS_MAX {
            return Err("the name server answers none of this run's questions; try again".into());
        }
        let (added, dropped) = (request.add_far.clone(), request.drop_far.clone());
        let (sender, found) = channel();
        let counted = Arc::clone(&self.0);
        let work = move || {
            // Its client may have gone.
            let _ = sender.send(urls(names, &added, &dropped));
            drop(counted);
        };
        let started = Builder::new().name("look-up".into()).spawn(work);
        started.map(|_| found).map_err(|error| format!("names cannot be looked up: {error}"))
    }
}

fn urls(names: FarNames, added: &[String], dropped: &[String]) -> Result<FarUrls, String> {
    let known = |origin: &str, written: &[String]| {
        let urls = written.iter().map(|url| names.known(origin, url).map_err(|why| why.to_string()));
        urls.collect::<Result<Vec<String>, String>>()
    };
    let urls = FarUrls { added: known("--add-far", added)?, dropped: known("--drop-far", dropped)? };
    if let Some(pool) = urls.added.iter().find(|url| url.starts_with("etcd")) {
        return Err(format!("--add-far: '{pool}': pools in a directory are read when the run starts; name the nodes"));
    }
    readiness::check_far("--add-far", &urls.added).map_err(|why| why.to_string())?;
    Ok(urls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_wire::Protection;

    #[test]
    fn paths_are_looked_up_beside_the_loop_and_so_many_at_a_time() {
        let names = FarNames { protection: Protection::None, replicas: None };
        let look_ups = LookUps::default();
        let asked = |add: &str| Request { add_far: vec![add.into()], ..Request::set(0) };
        let found = look_ups.begin(names, &asked("reference:16M")).unwrap().recv().unwrap();
        assert_eq!(found.unwrap().added, ["reference:16M"]);
        for (url, words) in [
            ("floppy:a", "there is no backend 'floppy'"),
            ("file:/nowhere/at/all", "--add-far: 'file:/nowhere/at/all'"),
            ("etcd://a/b", "name the nodes"),
        ] {
            let refused = look_ups.begin(names, &asked(url)).unwrap().recv().unwrap().unwrap_err();
            assert!(refused.contains(words), "{url}: {refused}");
        }
        let _waiting: Vec<Arc<()>> = (0..LOOK_UPS_MAX).map(|_| Arc::clone(&look_ups.0)).collect();
        assert!(look_ups.begin(names, &asked("reference:16M")).unwrap_err().contains("try again"));
    }
}
