//! What is started: a command line, an environment, a directory.

use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;

/// What of this process's environment every program gets: where programs, files and words of its user are found, and
/// nothing that could be a secret. What the SDK clients pass on, and the locale.
const INHERITED: [&str; 12] = [
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_RUNTIME_DIR",
];

/// What is started.
#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    /// The command.
    pub command: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What its environment has besides the usual.
    pub env: Vec<(String, String)>,
    /// What else of this process's environment it gets.
    pub pass_env: Vec<String>,
    /// Where it runs, if not where this process does.
    pub cwd: Option<PathBuf>,
}

impl Program {
    /// Ready to be started: its streams are pipes, and it leads a process group of its own.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.command);
        let inherited = INHERITED
            .into_iter()
            .chain(self.pass_env.iter().map(String::as_str));
        let inherited = inherited.filter_map(|name| Some((name, std::env::var_os(name)?)));
        command
            .args(&self.arguments)
            .env_clear()
            .envs(inherited)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        command
    }
}

/// Arguments and values may be secrets.
impl fmt::Debug for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        formatter
            .debug_struct("Program")
            .field("command", &self.command)
            .field("env", &names)
            .field("pass_env", &self.pass_env)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

/// The command alone: arguments may be secrets.
impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.command.fmt(formatter)
    }
}
