//! Settings as flags: a command says which settings it takes, and the table's rows make the flags, their values and their help.
//!
//! Values stay text here, so that a wrong flag, variable or file entry is refused in the same words (`config`).

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use hinterland_abi::{Form, SETTINGS, Setting, Sources, variables};
use std::marker::PhantomData;

/// The settings that a command takes as flags.
pub trait Selection {
    /// Whether this is one of them.
    fn takes(setting: &Setting) -> bool;
}

/// Those of `hinterland run`.
pub struct Run;

impl Selection for Run {
    fn takes(setting: &Setting) -> bool {
        matches!(setting.sources, Sources::Run | Sources::FlagOrVariable)
    }
}

/// Those of `hinterland optimize`, which itself reads the figures of its runs.
pub struct Optimized;

impl Selection for Optimized {
    fn takes(setting: &Setting) -> bool {
        Run::takes(setting) && ![variables::STATS, variables::QUIET].contains(&setting.variable)
    }
}

/// Those of `hinterland trace`.
pub struct Traced;

impl Selection for Traced {
    fn takes(setting: &Setting) -> bool {
        use variables::{
            CONFIG, ENCRYPT, FAR, FEATURES, HEAP, LOCAL, MICROSET, PLACEMENT, QUIET, RAM, REPLICAS, STATS,
        };
        // What far memory needs, too: a message that names a flag is the same as that of a run.
        [LOCAL, RAM, FAR, PLACEMENT, REPLICAS, ENCRYPT, HEAP, FEATURES, MICROSET, STATS, QUIET, CONFIG]
            .contains(&setting.variable)
            || Credentials::takes(setting)
    }
}

/// What proves to a memory node who we are, or the word that nothing need.
pub struct Credentials;

impl Selection for Credentials {
    fn takes(setting: &Setting) -> bool {
        use variables::{INSECURE_LOOPBACK, KEY_FILE, TLS, TLS_CA};
        [TLS, TLS_CA, KEY_FILE, INSECURE_LOOPBACK].contains(&setting.variable)
    }
}

/// The flags that were given.
pub struct Flags<S> {
    given: Vec<(&'static str, Vec<String>)>,
    of: PhantomData<S>,
}

impl<S> Flags<S> {
    /// The values of a setting, by its variable; none: its flag was not given. A switch that was given has the value `1`.
    pub fn values(&self, variable: &str) -> &[String] {
        self.given.iter().find(|(name, _)| *name == variable).map_or(&[], |(_, values)| values)
    }

    /// The value of a setting that takes one.
    pub fn value(&self, variable: &str) -> Option<&str> {
        self.values(variable).first().map(String::as_str)
    }

    /// Adds a value, unless its flag was given.
    pub fn or(mut self, variable: &'static str, value: Option<&str>) -> Flags<S> {
        if self.values(variable).is_empty() {
            self.given.extend(value.map(|value| (variable, vec![value.to_owned()])));
        }
        self
    }

    /// The flags as words of a command line.
    pub fn words(&self) -> Vec<String> {
        let setting = |name: &str| SETTINGS.iter().find(|setting| setting.variable == name);
        let mut words = Vec::new();
        for (name, values) in &self.given {
            let Some(setting) = setting(name) else { continue };
            match setting.form {
                Form::Switch => words.push(setting.flag()),
                _ => words.extend(values.iter().map(|value| format!("{}={value}", setting.flag()))),
            }
        }
        words
    }

    /// The same flags for another command, which does not ask for those that it does not take.
    pub fn of<T>(self) -> Flags<T> {
        Flags { given: self.given, of: PhantomData }
    }
}

impl<S> Default for Flags<S> {
    fn default() -> Flags<S> {
        Flags { given: Vec::new(), of: PhantomData }
    }
}

impl<S> Clone for Flags<S> {
    fn clone(&self) -> Flags<S> {
        Flags { given: self.given.clone(), of: PhantomData }
    }
}

fn taken<S: Selection>() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|setting| S::takes(setting))
}

fn argument(setting: &'static Setting) -> Arg {
    let argument = Arg::new(setting.name).long(setting.name).help(setting.flag_help());
    match setting.form {
        Form::Switch => argument.action(ArgAction::SetTrue),
        // A number below zero is no flag: it is refused in the setting's words.
        Form::One(_) | Form::Choice(..) => argument.value_name(setting.value_name()).allow_negative_numbers(true),
        Form::Many(_) => argument.value_name(setting.value_name()).action(ArgAction::Append),
    }
}

impl<S: Selection> Args for Flags<S> {
    fn augment_args(command: Command) -> Command {
        command.args(taken::<S>().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::<S>::augment_args(command)
    }
}

impl<S: Selection> FromArgMatches for Flags<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Flags<S>, clap::Error> {
        let values = |setting: &Setting| match setting.form {
            Form::Switch => Some(vec!["1".to_owned()]).filter(|_| matches.get_flag(setting.name)),
            _ => matches.get_many::<String>(setting.name).map(|values| values.cloned().collect()),
        };
        let given = taken::<S>().filter_map(|setting| Some((setting.variable, values(setting)?)));
        Ok(Flags { given: given.collect(), of: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Flags::from_arg_matches(matches)?;
        Ok(())
    }
}
