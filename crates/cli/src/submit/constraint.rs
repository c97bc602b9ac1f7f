//! The features that a job asks for: those that the user has named for sbatch, and the one of its far memory. sbatch takes the last `--constraint`
//! only, so both have to stand in one. Pure.

/// Takes what the user constrains out of the options of sbatch. The last one counts, as for sbatch; an empty one constrains nothing.
pub fn take(options: &[String]) -> (Option<String>, Vec<String>) {
    let (mut found, mut rest) = (None, Vec::new());
    let mut words = options.iter();
    while let Some(word) = words.next() {
        match value(word) {
            Value::OfOther => rest.push(word.clone()),
            Value::Here(value) => found = Some(value.to_owned()),
            Value::Next => match words.next() {
                Some(value) => found = Some(value.clone()),
                None => rest.push(word.clone()),
            },
        }
    }
    (found.filter(|value| !value.is_empty()), rest)
}

/// Where the value of the constraint stands.
enum Value<'a> {
    Here(&'a str),
    /// In the next word.
    Next,
    /// The word is of another option.
    OfOther,
}

/// What a word says of the constraint. getopt_long(3) takes a long option's beginning for it, where it begins no other one.
fn value(word: &str) -> Value<'_> {
    let (name, value) = match word.strip_prefix("-C") {
        Some(value) => ("-C", Some(value).filter(|value| !value.is_empty())),
        None => word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value))),
    };
    let is_meant = name == "-C" || "--constraint".starts_with(name) && name.len() >= "--cons".len();
    match value {
        _ if !is_meant => Value::OfOther,
        Some(value) => Value::Here(value),
        None => Value::Next,
    }
}

/// A constraint that demands both.
///
/// # Errors
/// The user's counts machines or names alternatives of which all get the same one: what ours is to be beside it, only the user can say.
pub fn both(users: &str, ours: &str) -> Result<String, String> {
    if users.contains(['[', ']', '*']) {
        let names_ours = users.split(|letter| "&|,()[]*".contains(letter)).any(|feature| feature == ours);
        return names_ours.then(|| users.to_owned()).ok_or_else(|| {
            format!(
                "--constraint='{users}' has brackets or counts, to which the job's far memory cannot be added: name the feature {ours} in it yourself"
            )
        });
    }
    let is_choice = split_outside(users, &['|', ',']).len() > 1;
    Ok(match is_choice {
        true => format!("({users})&{ours}"),
        false if split_outside(users, &['&']).contains(&ours) => users.to_owned(),
        false => format!("{users}&{ours}"),
    })
}

/// Splits at letters that stand in no parentheses.
fn split_outside<'a>(text: &'a str, at: &[char]) -> Vec<&'a str> {
    let mut depth = 0;
    let splits = |letter: char| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        depth == 0 && at.contains(&letter)
    };
    text.split(splits).collect()
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
        for written in ["--constraint=", "-Cgpu --cons="] {
            assert_eq!(take(&words(&format!("{written} --time=5"))), (None, words("--time=5")), "{written}");
        }
        assert_eq!(take(&words("--time=5 -C")), (None, words("--time=5 -C")), "its value is missing");
    }

    #[test]
    fn a_job_has_the_users_features_and_its_far_memory() {
        let both = |users| both(users, "far-ssd");
        assert_eq!(both("gpu"), Ok("gpu&far-ssd".into()));
        assert_eq!(both("gpu&big"), Ok("gpu&big&far-ssd".into()));
        assert_eq!(both("a|b"), Ok("(a|b)&far-ssd".into()));
        assert_eq!(both("(a|b)&c"), Ok("(a|b)&c&far-ssd".into()));
        for there in ["far-ssd", "gpu&far-ssd", "far-ssd&(a|b)"] {
            assert_eq!(both(there), Ok(there.into()));
        }
        assert_eq!(both("gpu|far-ssd"), Ok("(gpu|far-ssd)&far-ssd".into()), "a machine with a GPU need not have it");
        assert_eq!(both("(gpu|far-ssd)&big"), Ok("(gpu|far-ssd)&big&far-ssd".into()));
        assert_eq!(both("[a|b]&far-ssd"), Ok("[a|b]&far-ssd".into()));
        assert!(both("[rack1|rack2]").unwrap_err().contains("far-ssd") && both("gpu*2").is_err());
    }
}
