//! The features that a job asks for: those that the user has named for sbatch, and the one of its far memory. sbatch takes the last `--constraint`
//! only, so both have to stand in one. Pure.

/// Takes what the user constrains out of the options of sbatch. The last one counts, as for sbatch.
pub fn take(options: &[String]) -> (Option<String>, Vec<String>) {
    let (mut found, mut rest) = (None, Vec::new());
    let mut words = options.iter();
    while let Some(word) = words.next() {
        match value(word) {
            None => rest.push(word.clone()),
            Some("") => found = words.next().cloned().or(found),
            Some(value) => found = Some(value.to_owned()),
        }
    }
    (found, rest)
}

/// What a word says of the constraint; empty: the next word does. getopt_long(3) takes a long option's beginning for it, where it begins no other one.
fn value(word: &str) -> Option<&str> {
    if let Some(value) = word.strip_prefix("-C") {
        return Some(value);
    }
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let is_meant = "--constraint".starts_with(name) && name.len() >= "--cons".len();
    is_meant.then_some(value)
}

/// A constraint that demands both.
///
/// # Errors
/// The user's counts machines or names alternatives of which all get the same one: what ours is to be beside it, only the user can say.
pub fn both(users: &str, ours: &str) -> Result<String, String> {
    let names_ours = users.split(|letter| "&|,()[]*".contains(letter)).any(|feature| feature == ours);
    if names_ours {
        return Ok(users.to_owned());
    }
    if users.contains(['[', ']', '*']) {
        return Err(format!(
            "--constraint='{users}' has brackets or counts, to which the job's far memory cannot be added: name the feature {ours} in it yourself"
        ));
    }
    let is_choice = users.contains(['|', ',']);
    Ok(if is_choice { format!("({users})&{ours}") } else { format!("{users}&{ours}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_the_user_constrains_is_found_however_it_is_written() {
        for written in ["--constraint=gpu", "--constraint gpu", "-C gpu", "-Cgpu", "--cons=gpu", "-Cx --constraint=gpu"]
        {
            let options = words(&format!("--time=5 {written} --contiguous"));
            assert_eq!(take(&options), (Some("gpu".into()), words("--time=5 --contiguous")), "{written}");
        }
        assert_eq!(take(&words("--container=a -c 2 --time=5")), (None, words("--container=a -c 2 --time=5")));
    }

    #[test]
    fn a_job_has_the_users_features_and_its_far_memory() {
        let both = |users| both(users, "far-ssd");
        assert_eq!(both("gpu"), Ok("gpu&far-ssd".into()));
        assert_eq!(both("gpu&big"), Ok("gpu&big&far-ssd".into()));
        assert_eq!(both("a|b"), Ok("(a|b)&far-ssd".into()));
        assert_eq!(both("[a|b]&far-ssd"), Ok("[a|b]&far-ssd".into()));
        assert!(both("[rack1|rack2]").unwrap_err().contains("far-ssd") && both("gpu*2").is_err());
    }
}
