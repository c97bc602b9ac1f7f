//! The commands and flags that documents show are those of the real command line, and so are the examples of `--help`. The values of settings
//! and the URLs of far memory are read, too, as the launcher reads them.
//!
//! Commands stand in code blocks, as whole lines, and in code spans, where they may be shortened: a span may leave out what is required
//! (`hinterland run --stats FILE`), name a value (`--far URL`), and `[--json]` stands for `--json`.

use crate::files;
use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, Parser};
use hinterland_abi::{LauncherSettings, SETTINGS, Settings, variables};
use hinterland_bench::Cli as Bench;
use hinterland_cli::Cli as Hinterland;
use pulldown_cmark::{CodeBlockKind, Event, Tag, TagEnd};
use std::collections::HashSet;
use std::path::Path;

/// Decisions quote the command line of their day.
const HISTORY: &str = "docs/decisions";
/// Here each flag that a code span names is Hinterland's own, or one of [`FOREIGN`].
const OF_FLAGS: [&str; 3] = ["README.md", "docs/guide", "docs/reference"];
/// Flags of other commands that these documents name, and the one that stands among a compiler's words.
const FOREIGN: [&str; 4] = ["--full", "--cap-add", "--device", "--far-plan"];

/// Commands that take settings of a run.
const TAKE_SETTINGS: [&str; 5] = ["run", "profile", "trace", "optimize", "set"];

/// What a document shows as code.
#[derive(Default)]
struct Code {
    /// Lines of code blocks, continued ones joined.
    lines: Vec<String>,
    /// Code spans.
    spans: Vec<String>,
    /// Code blocks that are TOML.
    tables: Vec<String>,
}

fn code(text: &str) -> Code {
    let (mut code, mut block) = (Code::default(), None);
    for event in pulldown_cmark::Parser::new(text) {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                block = Some((matches!(kind, CodeBlockKind::Fenced(name) if &*name == "toml"), String::new()));
            }
            Event::End(TagEnd::CodeBlock) => match block.take() {
                Some((true, table)) => code.tables.push(table),
                Some((false, shell)) => code.lines.extend(shell.replace("\\\n", " ").lines().map(str::to_owned)),
                None => {}
            },
            Event::Text(text) => block.iter_mut().for_each(|(_, block)| block.push_str(&text)),
            Event::Code(span) => code.spans.push(span.into_string()),
            _ => {}
        }
    }
    code
}

/// The words of each `hinterland` command in a line of shell, or why it cannot be read.
fn commands(line: &str) -> Result<Vec<Vec<String>>, String> {
    if !line.contains("hinterland") {
        return Ok(Vec::new());
    }
    // Output that is shown beside commands need not be words of a shell.
    let Some(words) = shlex::split(line) else {
        let is_command = line.trim_start_matches("$ ").starts_with("hinterland ");
        return if is_command { Err(format!("'{line}' has an open quote")) } else { Ok(Vec::new()) };
    };
    let mut found = Vec::new();
    for command in words.split(|word| matches!(word.as_str(), "&&" | "||" | "|" | "&" | ";")) {
        let before = |word: &&String| {
            matches!(word.as_str(), "$" | "sudo" | "exec" | "source") || (word.contains('=') && !word.starts_with('-'))
        };
        let mut words = command.iter().skip_while(before).peekable();
        let is_ours =
            |word: &&&String| matches!(word.as_str(), "hinterland" | "target/release/hinterland" | "<(hinterland");
        if words.peek().is_some_and(|word| is_ours(&word)) {
            found.push(plain(words));
        }
    }
    Ok(found)
}

/// Without redirections, ellipses and the brackets of what may be left out.
fn plain<'a>(words: impl Iterator<Item = &'a String>) -> Vec<String> {
    let (mut kept, mut skip) = (Vec::new(), false);
    for word in words {
        let target = word.trim_start_matches(|c: char| c.is_ascii_digit());
        if std::mem::take(&mut skip) || target.starts_with(['>', '<']) && !kept.is_empty() {
            skip = matches!(target, ">" | ">>" | "<");
            continue;
        }
        let word =
            word.trim_start_matches(['<', '(', '[']).trim_end_matches([']', ')', ';', '…']).trim_end_matches("...");
        kept.extend((!word.is_empty()).then(|| word.to_owned()));
    }
    kept
}

/// Why the command line of `hinterland`, or that of the bench, does not take these words.
fn refusal(words: &[String], is_span: bool) -> Option<String> {
    let of_bench = words.get(1).is_some_and(|word| word == "bench");
    let error = match of_bench {
        true => Bench::try_parse_from(&words[1..]).err(),
        false => match Hinterland::command().try_get_matches_from(words) {
            Ok(given) if !is_span => return unread(&given).map(|why| format!("`{}`: {why}", words.join(" "))),
            Ok(_) => None,
            Err(error) => Some(error),
        },
    }?;
    let is_answer = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let is_short = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    let is_taken = is_answer || is_span && is_short;
    (!is_taken).then(|| format!("`{}`: {}", words.join(" "), error.to_string().lines().next().unwrap_or_default()))
}

/// Why a value or a URL among a command's settings is none, if one is.
fn unread(given: &ArgMatches) -> Option<String> {
    let (name, given) = given.subcommand()?;
    let values = |given: &ArgMatches, id: &str| -> Vec<String> {
        given.try_get_many::<String>(id).ok().flatten().map(|values| values.cloned().collect()).unwrap_or_default()
    };
    let wrong = TAKE_SETTINGS.contains(&name).then(|| {
        let added = ["add_far", "drop_far"].iter().flat_map(|id| values(given, id)).find_map(|url| wrong_url(&url));
        added.or_else(|| wrong_setting(|setting| values(given, setting).join(" ")))
    });
    wrong.flatten().or_else(|| unread(given))
}

/// Why one of a run's settings cannot be used, if one cannot; `text` has the values by the settings' names.
fn wrong_setting(text: impl Fn(&str) -> String) -> Option<String> {
    let name =
        |variable: &str| SETTINGS.iter().find(|setting| setting.variable == variable).map(|setting| setting.name);
    let read = |variable: &str| name(variable).map(&text);
    let wrong = Settings::from_env(read).err().or_else(|| LauncherSettings::from_env(read).err());
    let far = read(variables::FAR).unwrap_or_default();
    wrong.map(|(variable, why)| format!("{variable} {why}")).or_else(|| far.split(' ').find_map(wrong_url))
}

/// Why a URL is none; the shell puts a path in the place of this variable.
fn wrong_url(url: &str) -> Option<String> {
    let error = hinterland_backend::parse(&url.replace("$XDG_RUNTIME_DIR", "/run/user/1000"))
        .err()
        .filter(|_| !url.is_empty())?;
    Some(error.to_string())
}

/// Why a TOML block is none, or the settings in it cannot be used. Of a compiler's plan, the form alone is looked at.
fn wrong_table(text: &str) -> Option<String> {
    let table: toml::Table = match toml::from_str(text) {
        Ok(table) => table,
        Err(error) => return Some(error.to_string()),
    };
    if table.contains_key("hinterland-plan") {
        return None;
    }
    let words = |value: &toml::Value| match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(values) => values.iter().filter_map(toml::Value::as_str).collect::<Vec<_>>().join(" "),
        toml::Value::Boolean(value) => u8::from(*value).to_string(),
        value => value.to_string(),
    };
    let unknown = table.keys().find(|key| !SETTINGS.iter().any(|setting| setting.key() == **key));
    let unknown = unknown.map(|key| format!("`{key}` is no setting"));
    unknown.or_else(|| wrong_setting(|name| table.get(&name.replace('-', "_")).map_or_else(String::new, words)))
}

/// The long flags of a command and of all its subcommands.
fn flags(command: &clap::Command) -> HashSet<String> {
    let own = command.get_arguments().filter_map(|argument| Some(format!("--{}", argument.get_long()?)));
    own.chain(command.get_subcommands().flat_map(flags)).collect()
}

/// What is wrong with the commands and, where they are looked at, the flags of a document; and how many commands it has.
fn wrong(document: &Path, text: &str) -> (Vec<String>, usize) {
    let Code { lines, spans, tables } = code(text);
    let (mut wrong, mut seen): (Vec<String>, _) = (tables.iter().filter_map(|table| wrong_table(table)).collect(), 0);
    for (line, is_span) in lines.iter().map(|line| (line, false)).chain(spans.iter().map(|span| (span, true))) {
        match commands(line) {
            Ok(commands) => {
                seen += commands.len();
                wrong.extend(commands.iter().filter_map(|words| refusal(words, is_span)));
            }
            Err(why) => wrong.push(why),
        }
    }
    if OF_FLAGS.iter().any(|of| document.starts_with(of)) {
        let mut known = flags(&Hinterland::command());
        known.extend(flags(&Bench::command()).into_iter().chain(["--help", "--version"].map(String::from)));
        let named = spans.iter().filter(|span| span.starts_with("--") && span.len() > 2);
        let flag = |span: &String| span.split([' ', '=', ',', '[']).next().unwrap_or_default().to_owned();
        let unknown = named.map(flag).filter(|flag| !known.contains(flag) && !FOREIGN.contains(&flag.as_str()));
        wrong.extend(unknown.map(|flag| format!("`{flag}` is no flag of hinterland")));
    }
    (wrong.into_iter().map(|what| format!("{}: {what}", document.display())).collect(), seen)
}

/// The examples of `--help`.
fn examples(command: &clap::Command) -> Vec<String> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let own =
        help.lines().filter_map(|line| line.strip_prefix("  hinterland ")).map(|rest| format!("hinterland {rest}"));
    own.chain(command.get_subcommands().flat_map(examples)).collect()
}

#[test]
fn the_commands_and_flags_of_documents_are_real() {
    let (mut seen, mut found) = (0, Vec::new());
    for document in files::with_ending(&[".md"]).into_iter().filter(|document| !document.starts_with(HISTORY)) {
        let (wrong, commands) = wrong(&document, &files::text(&document));
        found.extend(wrong);
        seen += commands;
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(seen > 40, "only {seen} commands were found");
}

#[test]
fn the_examples_of_help_are_real() {
    let examples = [examples(&Hinterland::command()), examples(&Bench::command())].concat();
    assert!(examples.len() > 40, "only {} examples were found", examples.len());
    for line in &examples {
        let commands = commands(line).expect("shell");
        assert!(!commands.is_empty(), "{line}");
        for words in commands {
            assert_eq!(refusal(&words, false), None);
        }
    }
}

/// What a reader of numbers says to programmers.
const RAW: [&str; 5] = ["invalid digit", "is not in ", "invalid float", "cannot parse", "number too "];

/// The command and those below it that users see, each with the words that name it.
fn all(command: &clap::Command, before: &[String]) -> Vec<(Vec<String>, clap::Command)> {
    let words = [before, &[command.get_name().to_owned()]].concat();
    let is_seen = |below: &&clap::Command| !below.is_hide_set() && below.get_name() != "help";
    let below = command.get_subcommands().filter(is_seen).flat_map(|below| all(below, &words));
    below.chain([(words.clone(), command.clone())]).collect()
}

#[test]
fn the_help_of_each_command_has_examples_and_says_how_it_ends() {
    for (words, command) in all(&Hinterland::command(), &[]) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for part in ["Examples:\n", "Exit code: "] {
            assert!(help.contains(part), "the help of `{}` has no {part}", words.join(" "));
        }
    }
}

#[test]
fn json_is_asked_for_in_one_way() {
    for (words, command) in [all(&Hinterland::command(), &[]), all(&Bench::command(), &[])].concat() {
        let format = command.get_arguments().find(|argument| argument.get_long() == Some("format"));
        assert!(format.is_none(), "`{}` has --format; the others have --json", words.join(" "));
    }
}

#[test]
fn wrong_numbers_are_refused_in_words() {
    let mut refused = 0;
    let mut check = |words: &[String], parse: fn(&[String]) -> Option<clap::Error>| {
        let Some(error) = parse(words).filter(|error| error.kind() == ErrorKind::ValueValidation) else { return };
        let (said, words) = (error.to_string(), words.join(" "));
        assert!(RAW.iter().all(|raw| !said.contains(raw)), "`{words}` says: {said}");
        refused += 1;
    };
    let ours: fn(&[String]) -> Option<clap::Error> = |words| Hinterland::try_parse_from(words).err();
    let benchs: fn(&[String]) -> Option<clap::Error> = |words| Bench::try_parse_from(words).err();
    for (parse, command) in [(ours, Hinterland::command()), (benchs, Bench::command())] {
        for (words, command) in all(&command, &[]) {
            for argument in command.get_arguments().filter(|argument| argument.get_action().takes_values()) {
                for wrong in ["x", "0", "-1", "1.5", "99999999999999999999"] {
                    let flag = argument.get_long().map_or(wrong.to_owned(), |flag| format!("--{flag}={wrong}"));
                    check(&[&words[..], &[flag]].concat(), parse);
                }
            }
        }
    }
    assert!(refused > 100, "only {refused} numbers were refused");
}

#[test]
fn what_is_not_real_is_seen() {
    let of = |text: &str| wrong(Path::new("docs/guide/x.md"), text);
    let real = "`hinterland run --stats FILE`, `--local 1G`, `--help`, `node`\n\n```\n$ sudo target/release/hinterland run --local 1G \\\n    \
                --far 'file:/mnt/a?size=1G' -- sh -c 'x --no-such' > out 2>&1 && hinterland doctor [--json]\nhinterland: job ended\n\
                hinterland bench paging --size 1G   # a comment\nA=1 hinterland node --capacity 16G & other --flag\n```\n";
    assert_eq!(of(real), (Vec::new(), 5));
    for text in [
        "```\nhinterland run --no-such-flag -- true\n```",
        "```\nhinterland doctor && hinterland rnu -- true\n```",
        "```\nhinterland run \\\n  --no-such-flag -- true\n```",
        "1. x\n\n   ```\n   hinterland run --stats out.json\n   ```",
        "    hinterland run 'open\n",
        "```\nhinterland bench paging --no-such-flag\n```",
        "`hinterland run --no-such-flag`",
        "`hinterland rnu`",
        "`--no-such-flag`",
        "`--no-such-flag=SIZE`",
        "```\nhinterland run --evict nonsense --local 1G -- true\n```",
        "```\nhinterland run --far compresed:4G --local 1G -- true\n```",
        "```\nhinterland run --far compressed:4G?x=1 --local 1G -- true\n```",
        "```\nhinterland run --local 1 -- true\n```",
        "```\nhinterland profile -o a.profile --local 1G --prefetch x -- true\n```",
        "```\nhinterland set 4711 --add-far tcp//c\n```",
        "```\nhinterland set 4711 --block 3K\n```",
        "```toml\nlocal = \"1G\"\nevict = \"x\"\n```",
        "```toml\nno_such = \"1G\"\n```",
        "```toml\nlocal = 1G\n```",
    ] {
        assert_eq!(of(text).0.len(), 1, "{text}");
    }
    assert!(wrong(Path::new("CONTRIBUTING.md"), "`--workspace`").0.is_empty(), "cargo's own");
}
