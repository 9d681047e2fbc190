//! What lints cannot see: the size of files, the words at their head, what the free rooms must not know.

use std::path::{Path, PathBuf};

/// Lines of a file, its tests among them.
const LINES_MAX: usize = 500;

fn sources(under: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(under);
    let mut found = Vec::new();
    let mut folders = vec![root];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "no source under {under}");
    found
}

/// The text of a file up to its tests, which stand last.
fn without_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or(text)
}

#[test]
fn files_are_short() {
    for under in ["src", "tests", "benches"] {
        for (path, text) in sources(under) {
            let lines = text.lines().count();
            assert!(lines <= LINES_MAX, "{} has {lines} lines", path.display());
        }
    }
}

#[test]
fn every_module_says_what_it_is() {
    for under in ["src", "tests", "benches"] {
        for (path, text) in sources(under) {
            assert!(text.starts_with("//! "), "{} does not", path.display());
        }
    }
}

/// `wire`, `translate` and `call` are free of I/O and of the clock.
#[test]
fn the_free_rooms_are_free() {
    let mut seen = 0;
    for (path, text) in sources("src") {
        let room = path
            .strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
            .unwrap();
        let room = room
            .components()
            .next()
            .unwrap()
            .as_os_str()
            .to_string_lossy()
            .into_owned();
        if !["wire", "translate", "call"].contains(&room.trim_end_matches(".rs")) {
            continue;
        }
        seen += 1;
        for forbidden in [
            "tokio",
            "hyper",
            "std::net",
            "std::fs",
            "std::io",
            "std::thread",
            "Instant::now",
            "SystemTime",
            "getrandom",
        ] {
            let code = without_tests(&text)
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            for line in code {
                assert!(
                    !line.contains(forbidden),
                    "{} knows {forbidden}: {line}",
                    path.display()
                );
            }
        }
    }
    assert!(seen >= 3, "only {seen} files of the free rooms");
}

/// Words that would tie the code to where it was written.
#[test]
fn no_path_of_a_machine() {
    for under in ["src", "tests", "benches"] {
        for (path, text) in sources(under) {
            for (number, line) in text.lines().enumerate() {
                let is_path = ["/home/", "/root/"].iter().any(|root| line.contains(root));
                let is_this = path.ends_with("tidy.rs");
                assert!(
                    !is_path || is_this,
                    "{}:{} names a machine",
                    path.display(),
                    number + 1
                );
            }
        }
    }
}
