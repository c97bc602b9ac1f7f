//! What a row of the table says of a setting, and the macro that makes structs, names and readers of the rows.

/// One setting: its names, where it may stand, and what to say of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The name, as the flag has it.
    pub name: &'static str,
    /// The environment variable.
    pub variable: &'static str,
    /// How many values it takes.
    pub form: Form,
    /// Where it may stand.
    pub sources: Sources,
    /// What it does, without a full stop.
    pub help: &'static str,
    /// What holds when it is not set; empty: nothing does.
    pub default: &'static str,
    /// A value to show where the default is none or is said in words; empty elsewhere.
    pub example: &'static str,
}

/// How many values a setting takes, and how they are named in help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// None: the flag says yes.
    Switch,
    /// One.
    One(&'static str),
    /// One of these; help lists them.
    Choice(&'static str, &'static str),
    /// Any number: the flag is repeated, the variable separates them by spaces, the settings file has a list.
    Many(&'static str),
}

/// Where a setting may stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sources {
    /// In a flag of `hinterland run`, a variable or the settings file.
    Run,
    /// In a flag of `hinterland run` or a variable.
    FlagOrVariable,
    /// In a variable.
    Variable,
    /// In a variable that the launcher sets for the program.
    Launcher,
}

impl Setting {
    /// The flag: `--read-ahead`.
    pub fn flag(&self) -> String {
        format!("--{}", self.name)
    }

    /// The key in the settings file: `read_ahead`.
    pub fn key(&self) -> String {
        self.name.replace('-', "_")
    }

    /// What the value is called in help; empty for a switch.
    pub fn value_name(&self) -> &'static str {
        match self.form {
            Form::Switch => "",
            Form::One(name) | Form::Choice(name, _) | Form::Many(name) => name,
        }
    }

    /// What it does, and what may be chosen.
    pub fn meaning(&self) -> String {
        match self.form {
            Form::Choice(_, choices) => format!("{}: {choices}", self.help),
            _ => self.help.to_owned(),
        }
    }

    /// The help of its flag.
    pub fn flag_help(&self) -> String {
        let meaning = self.meaning();
        if self.default.is_empty() { meaning } else { format!("{meaning}. Default: {}", self.default) }
    }

    /// A value to show: the default, or an example where the default is no value.
    pub fn shown(&self) -> &'static str {
        match self.form {
            Form::Switch => "false",
            _ if self.example.is_empty() => self.default,
            _ => self.example,
        }
    }

    /// The row of a variable.
    pub fn of(variable: &str) -> Option<&'static Setting> {
        super::SETTINGS.iter().find(|setting| setting.variable == variable)
    }
}

/// Makes, of rows, the structs that hold the settings, the module `variables`, and the table of all.
///
/// A row: `VARIABLE "name" field: Type = KIND, form, sources, "help", "default";` — of `names`, without field, type and kind.
/// Where the default is no value that could be written, `, "example"` comes after it.
macro_rules! settings {
    (
        $(
            $(#[$struct_doc:meta])*
            struct $struct:ident {
                $($variable:ident $name:literal $field:ident: $type:ty = $kind:expr, $form:expr, $sources:ident, $help:literal, $default:literal $(, $example:literal)?;)*
            }
        )*
        names {
            $($other:ident $other_name:literal = $other_form:expr, $other_sources:ident, $other_help:literal, $other_default:literal;)*
        }
    ) => {
        /// The environment variables.
        pub mod variables {
            $($(
                #[doc = $help]
                pub const $variable: &str = concat!("HINTERLAND_", stringify!($variable));
            )*)*
            $(
                #[doc = $other_help]
                pub const $other: &str = concat!("HINTERLAND_", stringify!($other));
            )*
        }

        /// All settings, in the order of help.
        pub const SETTINGS: &[Setting] = &[
            $($(Setting {
                name: $name,
                variable: variables::$variable,
                form: $form,
                sources: Sources::$sources,
                help: $help,
                default: $default,
                example: concat!($($example)?),
            },)*)*
            $(Setting {
                name: $other_name,
                variable: variables::$other,
                form: $other_form,
                sources: Sources::$other_sources,
                help: $other_help,
                default: $other_default,
                example: "",
            },)*
        ];

        $(
            $(#[$struct_doc])*
            #[derive(Clone, PartialEq, Eq, Debug, Default)]
            pub struct $struct {
                $(#[doc = $help] pub $field: $type,)*
            }

            impl $struct {
                /// Reads the settings through `get`, which returns a variable's value. An unset or empty variable keeps the default.
                ///
                /// # Errors
                /// The variable's name and what is wrong with its value.
                pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<$struct, (&'static str, EnvError)> {
                    let mut settings = $struct::default();
                    $(if let Some(text) = get(variables::$variable).filter(|text| !text.is_empty()) {
                        settings.$field = ($kind.read)(&text).map_err(|why| (variables::$variable, why))?;
                    })*
                    Ok(settings)
                }

                /// The variables that hand these settings over; an empty value means "unset it".
                pub fn to_env(&self) -> Vec<(&'static str, String)> {
                    vec![$((variables::$variable, ($kind.write)(&self.$field)),)*]
                }
            }
        )*
    };
}
pub(super) use settings;
