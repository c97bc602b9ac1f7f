//! The default address of a node, for the node itself and for the commands that ask it.

use super::NodeError;
use nix::unistd::Uid;

/// The URL that is written, or the usual one of this user.
///
/// # Errors
/// None is written, and the user has no directory for sockets.
pub fn or_default(written: Option<&str>) -> Result<String, NodeError> {
    match written {
        Some(written) => Ok(written.to_owned()),
        None => default_url(Uid::effective().is_root(), std::env::var("XDG_RUNTIME_DIR").ok()),
    }
}

fn default_url(is_root: bool, directory: Option<String>) -> Result<String, NodeError> {
    match directory.filter(|directory| directory.starts_with('/')) {
        _ if is_root => Ok("unix:/run/hinterland.sock".into()),
        Some(directory) => Ok(format!("unix:{}/hinterland.sock", directory.trim_end_matches('/'))),
        None => Err(NodeError::NoUsualPlace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_users_have_sockets_of_their_own() {
        let directory = || Some("/run/user/1000/".to_owned());
        assert_eq!(default_url(true, directory()).expect("root"), "unix:/run/hinterland.sock");
        assert_eq!(default_url(false, directory()).expect("a user"), "unix:/run/user/1000/hinterland.sock");
        for nowhere in [None, Some(String::new()), Some("run".into())] {
            let error = default_url(false, nowhere).expect_err("no directory").to_string();
            assert!(error.contains("XDG_RUNTIME_DIR") && error.contains("unix:/PATH"), "{error}");
        }
    }
}
