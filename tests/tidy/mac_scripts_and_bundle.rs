//! What a Mac needs and Linux does not notice: scripts that its bash and tools understand, and a
//! bundle that declares what the app uses.

use crate::sources::rust_sources;
use crate::{none, root};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// Scripts that `make run`, `make test`, `make app` and the report run on a Mac.
const SCRIPTS: &[&str] = &[
    "Makefile",
    "scripts/archive",
    "scripts/browser-tests",
    "scripts/bundle",
    "scripts/check-macos-selftest",
    "scripts/mac-report",
    "scripts/say",
    "scripts/setup",
    "scripts/test-python",
    "scripts/third-party-licences",
    "scripts/with-display",
];

/// What bash 3.2 and the tools of macOS do not understand.
const UNPORTABLE: &[(&str, &str)] = &[
    ("mapfile", "bash 3.2 lacks it"),
    ("readarray", "bash 3.2 lacks it"),
    ("declare -A", "bash 3.2 lacks it"),
    ("local -A", "bash 3.2 lacks it"),
    ("local -n", "bash 3.2 lacks it"),
    ("wait -n", "bash 3.2 lacks it"),
    ("coproc ", "bash 3.2 lacks it"),
    ("&>>", "bash 3.2 lacks it"),
    ("|&", "bash 3.2 lacks it"),
    (",,}", "bash 3.2 lacks it"),
    ("^^}", "bash 3.2 lacks it"),
    ("@Q}", "bash 3.2 lacks it"),
    ("EPOCHSECONDS", "bash 3.2 lacks it"),
    ("grep -P", "it is GNU's"),
    ("grep -z", "it is GNU's"),
    ("sed -i", "BSD's takes a suffix"),
    ("sed -r", "it is GNU's"),
    ("readlink -f", "older systems lack it"),
    ("xargs -r", "it is GNU's"),
    ("sort -V", "it is GNU's"),
    ("stat -c", "it is GNU's"),
    ("date -d", "it is GNU's"),
    ("head -n -", "it is GNU's"),
    ("cp -t", "it is GNU's"),
    ("$(nproc", "macOS lacks it"),
    ("realpath ", "older systems lack it"),
    (" timeout ", "macOS lacks it"),
    ("setsid ", "macOS lacks it"),
    ("python3 -", "a bare Mac lacks it"),
];

fn unportable(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with('#') {
            continue;
        }
        for (pattern, reason) in UNPORTABLE {
            if line.contains(pattern) {
                complaints.push(format!("{path}:{}: `{pattern}`: {reason}", at + 1));
            }
        }
    }
    complaints
}

/// Words before which or instead of which no program stands.
const BUILTINS: &[&str] = &[
    "[[", "cd", "continue", "break", "case", "echo", "esac", "eval", "exit", "export", "false",
    "fi", "for", "function", "hash", "in", "kill", "local", "printf", "read", "return", "set",
    "shift", "test", "trap", "true", "type", "ulimit", "unset", "wait",
];
/// Words after which a program stands.
const PREFIXES: &[&str] = &[
    "!", "{", "}", "command", "do", "done", "elif", "else", "exec", "if", "then", "until", "while",
];
/// Programs that the scripts or Ebb run on Linux only, or only if they are there.
const LINUX_ONLY: &[&str] = &[
    "apt-cache",
    "apt-get",
    "dpkg-deb",
    "dpkg-query",
    "pkg-config",
    "pngquant",
    "sha256sum",
    "sudo",
    "timeout",
    "xdg-open",
    "xvfb-run",
];
/// Programs whose options differ between GNU and BSD, or between their versions.
const WITH_OPTIONS: &[&str] = &[
    "cp", "cut", "date", "df", "du", "find", "git", "grep", "head", "ls", "mktemp", "sed", "sort",
    "tail", "tar", "tr", "uniq", "wc", "xargs",
];

/// Characters until after the first `end`.
fn past(text: &[char], end: &str) -> usize {
    let text: String = text.iter().collect();
    let found = text.split_once(end);
    found.map_or(text.chars().count(), |(before, _)| {
        before.chars().count() + end.chars().count()
    })
}

/// A script without comments, quoted text, here-documents and values of arrays. A substitution
/// begins a line of its own, and so does the body of a function.
fn shell_code(script: &str) -> String {
    let text: Vec<char> = script.chars().collect();
    let (mut code, mut inside, mut at) = (String::new(), Vec::new(), 0);
    while at < text.len() {
        let rest = &text[at..];
        let is_quoted = inside.last() == Some(&'"');
        at += match rest {
            ['\\', ..] => 2,
            ['$', '(', '(', ..] => past(rest, "))"),
            ['$', '(', ..] => {
                inside.push('(');
                code.push('\n');
                2
            }
            ['$', '{', ..] => past(rest, "}"),
            ['"', ..] => {
                if is_quoted {
                    inside.pop();
                } else {
                    inside.push('"');
                }
                code.push('_');
                1
            }
            _ if is_quoted => 1,
            ['\'', quoted @ ..] => {
                code.push('_');
                1 + past(quoted, "'")
            }
            ['#', ..] if code.is_empty() || code.ends_with([' ', '\n']) => {
                code.push('\n');
                past(rest, "\n")
            }
            ['<', '<', letter, ..] if letter.is_ascii_uppercase() => {
                let name: String = rest[2..].iter().take_while(|c| **c != '\n').collect();
                code.push('\n');
                past(rest, &format!("\n{name}\n"))
            }
            ['(', ')', ..] => {
                code.push_str(" ()\n");
                2
            }
            other => {
                let (written, used) = bracket(other, &mut inside);
                code.push_str(&written);
                used
            }
        };
    }
    code
}

/// What a character outside quotes is replaced with, and how many were read.
fn bracket(rest: &[char], inside: &mut Vec<char>) -> (String, usize) {
    match rest {
        ['=', '(', ..] => ("=".to_owned(), past(rest, ")")),
        ['(', ..] => {
            inside.push('(');
            ("\n".to_owned(), 1)
        }
        [')', ..] if inside.last() == Some(&'(') => {
            inside.pop();
            (" _ ".to_owned(), 1)
        }
        [letter, ..] => (letter.to_string(), 1),
        [] => (String::new(), 1),
    }
}

/// The programs and functions that a script runs, and the functions that it defines.
fn commands(script: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let is_prefix = |word: &&str| {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        let is_assignment = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        // The pattern of a case ends with a bracket.
        PREFIXES.contains(word) || is_assignment || word.ends_with(')')
    };
    let is_name = |word: &str| {
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_+-".contains(c);
        word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(known)
    };
    let (mut run, mut defined) = (BTreeSet::new(), BTreeSet::new());
    for part in shell_code(script).split(['\n', ';', '|', '&']) {
        let mut words = part.split_whitespace().skip_while(is_prefix);
        match (words.next(), words.next()) {
            (Some(name), Some("()")) => {
                defined.insert(name.to_owned());
            }
            (Some(name), _) if is_name(name) && !BUILTINS.contains(&name) => {
                run.insert(name.to_owned());
            }
            _ => {}
        }
    }
    (run, defined)
}

/// The commands of a Makefile: those of recipes, and those that compute variables. Functions of
/// make and references to its variables are no commands.
fn makefile_commands(makefile: &str) -> String {
    let joined = makefile.replace("\\\n", " ");
    let lines = joined.lines().flat_map(|line| {
        let recipe = line.strip_prefix('\t');
        let recipe = recipe.map(|line| line.trim_start_matches(['@', '-']).to_owned());
        let computed = line.split_once("$(shell ").map(|(_, rest)| {
            let end = rest.rfind(')').unwrap_or(rest.len());
            rest[..end].to_owned()
        });
        recipe.or(computed)
    });
    let mut code: String = lines.map(|line| line + "\n").collect();
    for (reference, stands_for) in [("$(MAKE)", "make"), ("$(step)", "printf"), ("$@", "_")] {
        code = code.replace(reference, stands_for);
    }
    let mut shell = String::new();
    let mut rest = code.as_str();
    while let Some((before, after)) = rest.split_once("$(") {
        // `$$(` is a substitution of the shell, `$(` is a variable.
        let is_of_shell = before.ends_with('$');
        let (name, later) = after.split_once(')').unwrap_or((after, ""));
        if is_of_shell {
            shell = shell + before.trim_end_matches('$') + "$(";
            rest = after;
        } else {
            let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            assert!(is_name, "a function of make in a recipe: {name}");
            shell = shell + before + "_";
            rest = later;
        }
    }
    (shell + rest).replace("$$", "$")
}

/// The commands of the scripts in `package.json`.
fn package_commands(package: &str) -> String {
    let package: Value = serde_json::from_str(package).expect("it is JSON");
    let scripts = package["scripts"].as_object().expect("it has scripts");
    let lines = scripts.values().filter_map(Value::as_str);
    lines.map(|line| format!("{line}\n")).collect()
}

/// Programs that Ebb itself starts.
fn started_by_rust(source: &str) -> BTreeSet<String> {
    let starts = source.split("Command::new(\"").skip(1);
    let paths = starts.filter_map(|rest| rest.split('"').next());
    paths
        .filter_map(|path| path.rsplit('/').next())
        .map(str::to_owned)
        .collect()
}

/// The rows of the guide's table: what is in backquotes in the first two cells.
fn table(guide: &str) -> Vec<[Vec<&str>; 2]> {
    let (_, appendix) = guide
        .split_once("## Appendix: programs")
        .expect("the guide has the table");
    let rows = appendix.lines().filter(|line| line.starts_with('|'));
    rows.map(|row| {
        let mut cells = row.split('|').skip(1);
        [(); 2].map(|()| {
            let cell = cells.next().unwrap_or_default();
            let quoted = cell.split('`').skip(1).step_by(2);
            quoted.flat_map(str::split_whitespace).collect()
        })
    })
    .collect()
}

/// Options that a script gives to a program and the program's row does not name. The letters of
/// `-nE` count one by one, except for `find` and `tar`.
fn unlisted_options(path: &str, script: &str, guide: &str) -> Vec<String> {
    let rows = table(guide);
    let mut complaints = Vec::new();
    for part in shell_code(script).split(['\n', ';', '|', '&']) {
        let mut words = part.split_whitespace();
        let Some(program) = words.find(|word| WITH_OPTIONS.contains(word)) else {
            continue;
        };
        let row = rows
            .iter()
            .find(|[programs, _]| programs.contains(&program));
        let listed: Vec<&str> = row.map_or_else(Vec::new, |row| row.concat());
        let is_option = |word: &&str| word.len() > 1 && word.starts_with('-');
        for option in words.take_while(|word| *word != "--").filter(is_option) {
            // `-f1` is `-f` with a value.
            let option = option.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
            let letters = option[1..].chars().map(|letter| format!("-{letter}"));
            let is_whole = option.starts_with("--") || ["find", "tar"].contains(&program);
            let by_letter = || letters.clone().all(|one| listed.contains(&one.as_str()));
            let name = option.split('=').next().unwrap_or(option);
            if !listed.contains(&name) && (is_whole || !by_letter()) {
                complaints.push(format!(
                    "{path}: {program} {option}: docs/guide/mac.md does not list this option"
                ));
            }
        }
    }
    complaints
}

/// Programs that scripts run and the guide's table does not list.
fn unlisted(scripts: &[(&str, String)], guide: &str) -> Vec<String> {
    let rows = table(guide);
    let listed: BTreeSet<&str> = rows
        .iter()
        .flat_map(|[names, _]| names.iter().copied())
        .collect();
    let read = scripts.iter().map(|(path, text)| (path, commands(text)));
    let read: Vec<_> = read.collect();
    let defined: BTreeSet<&String> = read.iter().flat_map(|(_, (_, defined))| defined).collect();
    let mut complaints = Vec::new();
    for (path, (run, _)) in &read {
        let known = |name: &str| listed.contains(name) || LINUX_ONLY.contains(&name);
        let unknown = run
            .iter()
            .filter(|name| !known(name) && !defined.contains(name));
        complaints.extend(unknown.map(|name| {
            format!("{path} runs {name}, which the appendix of docs/guide/mac.md does not list")
        }));
    }
    complaints
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Keys and values that the property list lacks.
fn undeclared(plist: &str) -> Vec<String> {
    let needed = [
        "<string>public.folder</string>",
        "<key>NSCameraUsageDescription</key>",
        "<key>NSLocalNetworkUsageDescription</key>",
        "<key>UTExportedTypeDeclarations</key>",
        "<key>NSDesktopFolderUsageDescription</key>",
        "<key>NSDocumentsFolderUsageDescription</key>",
        "<key>NSDownloadsFolderUsageDescription</key>",
        "<key>NSRemovableVolumesUsageDescription</key>",
        "<key>NSNetworkVolumesUsageDescription</key>",
    ];
    let missing = needed.iter().filter(|needed| !plist.contains(**needed));
    missing
        .map(|needed| format!("Info.plist lacks {needed}"))
        .collect()
}

#[test]
fn scripts_run_with_the_tools_of_macos() {
    let found = SCRIPTS
        .iter()
        .flat_map(|path| unportable(path, &text(path)));
    none(&found.collect::<Vec<_>>());
    let planted = "# mapfile in a comment\nmapfile -t lines <file\nx=${name,,}\n";
    assert_eq!(unportable("planted", planted).len(), 2);
}

#[test]
fn the_guide_lists_every_program_that_a_script_for_the_mac_runs() {
    let bash = SCRIPTS.iter().filter(|path| **path != "Makefile");
    let bash = bash.chain(&["scripts/check-macos"]);
    let mut all: Vec<_> = bash.map(|path| (*path, text(path))).collect();
    all.push(("Makefile", makefile_commands(&text("Makefile"))));
    all.push(("package.json", package_commands(&text("package.json"))));
    let guide = text("docs/guide/mac.md");
    none(&unlisted(&all, &guide));
    let options = all
        .iter()
        .flat_map(|(path, script)| unlisted_options(path, script, &guide));
    none(&options.collect::<Vec<_>>());
    let (run, _) = commands(&text("scripts/bundle"));
    assert!(
        run.contains("codesign") && run.contains("hdiutil"),
        "{run:?}"
    );
    let planted = "helper() { curl x; } # wget\n\
        if ! lipo -info \"$(otool -L \"a; say b\")\" 'nm'; then helper | vtool; fi\n\
        case $x in\n  Darwin) files=(dwarfdump) HOME=/ dsymutil ;;\n esac\n\
        cat <<END\nlldb\nEND\n";
    let complaints = unlisted(&[("planted", planted.to_owned())], &guide);
    let named = |name: &str| complaints.iter().any(|c| c.contains(&format!(" {name},")));
    for program in ["lipo", "otool", "vtool", "dsymutil"] {
        assert!(named(program), "{program}: {complaints:?}");
    }
    assert_eq!(complaints.len(), 4, "{complaints:?}");
}

#[test]
fn the_guide_lists_the_options_and_the_programs_of_other_files() {
    let guide = text("docs/guide/mac.md");
    let makefile = "all: lipo\n\t@curl -o x $(URL) && \\\n\t  if [ \"$$(nm x)\" ]; then otool x; fi\n\
        files := a $(shell find . -xdev \\( -path a \\) -prune)\n";
    let commands_of_make = makefile_commands(makefile);
    let (run, _) = commands(&commands_of_make);
    let expected = ["curl", "find", "nm", "otool"].map(str::to_owned);
    assert_eq!(run, BTreeSet::from(expected), "{commands_of_make}");
    let complaints = unlisted_options("planted", &commands_of_make, &guide);
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].contains("find -xdev"), "{complaints:?}");
    let planted = "sort -nz <file | grep -qE x; tar -xzf a --wildcards\n";
    let complaints = unlisted_options("planted", planted, &guide);
    assert_eq!(complaints.len(), 2, "{complaints:?}");
    let package = r#"{"scripts": {"build": "esbuild ui", "size": "node ui/size.mjs"}}"#;
    let (run, _) = commands(&package_commands(package));
    assert_eq!(run, BTreeSet::from(["esbuild", "node"].map(str::to_owned)));
}

#[test]
fn the_guide_lists_every_program_that_ebb_starts() {
    let guide = text("docs/guide/mac.md");
    let rows = table(&guide);
    let is_listed = |name: &str| {
        let mut all = rows.iter().flat_map(|[names, _]| names);
        all.any(|listed| *listed == name) || LINUX_ONLY.contains(&name)
    };
    let is_of_ebb = |path: &str| path.starts_with("src-tauri/") || path.contains("/src/");
    let sources = rust_sources().into_iter();
    let mut started = BTreeSet::new();
    for source in sources.filter(|source| is_of_ebb(&source.path)) {
        started.extend(started_by_rust(&source.text));
    }
    assert!(
        started.contains("open") && started.contains("ssh"),
        "{started:?}"
    );
    let unknown = started.iter().filter(|name| !is_listed(name));
    let unknown = unknown.map(|name| format!("the appendix of docs/guide/mac.md lacks {name}"));
    none(&unknown.collect::<Vec<_>>());
    let planted = "Command::new(\"/usr/bin/lipo\").arg(x); Command::new(ebb);";
    assert_eq!(
        started_by_rust(planted),
        BTreeSet::from(["lipo".to_owned()])
    );
}

#[test]
fn the_bundle_declares_folders_and_reasons() {
    none(&undeclared(&text("Info.plist")));
    assert_eq!(undeclared("").len(), 9);
    // The hardened runtime refuses what the entitlements do not name.
    assert!(text("Entitlements.plist").contains("<key>com.apple.security.device.camera</key>"));
    let config: Value = serde_json::from_str(&text("tauri.conf.json")).expect("it is JSON");
    let bundle = &config["bundle"]["macOS"];
    assert_eq!(bundle["entitlements"], "Entitlements.plist");
}

#[test]
fn finder_opens_an_exported_run_with_ebb() {
    let plist: String = text("Info.plist").split_whitespace().collect();
    let config: Value = serde_json::from_str(&text("tauri.conf.json")).expect("it is JSON");
    let identifier = config["identifier"].as_str().expect("it is text");
    let kind = format!("<string>{identifier}.run</string>");
    let declared = format!("<key>UTTypeIdentifier</key>{kind}");
    assert!(plist.contains(&declared), "the type is declared");
    let opened = format!("<key>LSItemContentTypes</key><array>{kind}</array>");
    assert!(plist.contains(&opened), "Ebb opens the type");
    let source = text("src-tauri/import_run.rs");
    let (_, rest) = source
        .split_once("ENDING: &str = \"")
        .expect("the ending is declared");
    let ending = rest.split('"').next().expect("text follows");
    let named =
        format!("<key>public.filename-extension</key><array><string>{ending}</string></array>");
    assert!(plist.contains(&named), "files are known by their ending");
    // The event of Finder goes the way of a dropped file.
    let hooks = text("src-tauri/system_events/macos.rs");
    let (_, event) = hooks
        .split_once("RunEvent::Opened")
        .expect("the event is handled");
    assert!(event.contains("shell.open_first(&app, &paths)"));
}

#[test]
fn only_the_bundle_sends_notifications() {
    let config: Value = serde_json::from_str(&text("tauri.conf.json")).expect("it is JSON");
    let identifier = format!("const IDENTIFIER: &str = {};", config["identifier"]);
    assert!(text("src-tauri/os_integration/macos.rs").contains(&identifier));
}

#[test]
fn one_oldest_system_is_named_everywhere() {
    let source = text("crates/tape/src/device/mac_support.rs");
    let (_, rest) = source
        .split_once("OLDEST_MACOS: u32 = ")
        .expect("the oldest system is declared");
    let oldest = rest.split(';').next().expect("a number follows");
    let config: Value = serde_json::from_str(&text("tauri.conf.json")).expect("it is JSON");
    let bundle = &config["bundle"]["macOS"];
    assert_eq!(bundle["minimumSystemVersion"], format!("{oldest}.0"));
    assert_eq!(bundle["signingIdentity"], "-", "signed ad hoc by default");
    assert!(text("README.md").contains(&format!("macOS {oldest}")));
    assert!(text("docs/guide/mac.md").contains(&format!("macOS {oldest} or later")));
}

/// A file manager of Linux offers Ebb for folders and for exported runs, as Finder does.
#[test]
fn the_linux_bundle_opens_folders_and_exported_runs() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("it is in the repository");
    let config: Value = serde_json::from_str(&read("tauri.conf.json")).expect("it is JSON");
    let deb = &config["bundle"]["linux"]["deb"];
    let template = read(deb["desktopTemplate"].as_str().expect("a path"));
    let line = |key: &str| {
        let found = template.lines().find_map(|line| line.strip_prefix(key));
        found.unwrap_or_else(|| panic!("{key} in {template}"))
    };
    assert_eq!(line("Exec="), "{{exec}} app %f");
    let types: Vec<&str> = line("MimeType=").split_terminator(';').collect();
    assert_eq!(types, ["application/x-ebb-run", "inode/directory"]);
    let mime = deb["files"]["/usr/share/mime/packages/ebb.xml"].as_str();
    let mime = read(mime.expect("a path"));
    assert!(mime.contains(&format!("<mime-type type=\"{}\">", types[0])));
    let import = read("src-tauri/import_run.rs");
    let ending = import.split_once("ENDING: &str = \"").expect("the ending");
    let ending = ending.1.split_once('"').expect("the ending").0;
    assert!(mime.contains(&format!("<glob pattern=\"*.{ending}\"/>")));
}
