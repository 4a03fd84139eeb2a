//! apt with lists of its own: what this machine's Debian offers, backports included, without a change to the machine.
//!
//! Where to ask is read from the machine's own sources.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::process::Program;

/// A new kernel is no hurry.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);
const ATTEMPTS: u32 = 3;
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

pub struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// Lists that are no older than a day, if they can be had; older ones are said to be so.
    pub fn open(folder: &Path, component: &str) -> Result<Self> {
        let apt = Self { folder: folder.to_owned() };
        for folder in ["lists/partial", "archives/partial"] {
            let folder = apt.folder.join(folder);
            fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let sources = sources(component)?;
        let file = apt.folder.join("sources.list");
        let stamp = apt.folder.join("updated");
        let same = fs::read_to_string(&file).is_ok_and(|text| text == sources);
        if same && age(&stamp).is_some_and(|age| age < FRESH) {
            return Ok(apt);
        }
        fs::write(&file, sources).with_context(|| format!("cannot write {}", file.display()))?;
        match apt.update() {
            Ok(()) => fs::write(&stamp, "").with_context(|| format!("cannot write {}", stamp.display()))?,
            Err(error) if age(&stamp).is_some() => println!("vm: {error:#}: taking older lists"),
            Err(error) => return Err(error),
        }
        Ok(apt)
    }

    fn update(&self) -> Result<()> {
        again(|| self.program("apt-get").args(["--quiet", "--quiet", "update"]).run())
    }

    /// Names of packages that begin like this.
    pub fn packages(&self, prefix: &str) -> Result<Vec<String>> {
        let pattern = format!("^{}", prefix.replace('.', "[.]"));
        let found = self.program("apt-cache").args(["search", "--names-only", &pattern]).output();
        let found = found.context("apt-cache does not answer")?;
        Ok(found.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
    }

    /// The package as a file in `folder`, where nothing else is.
    pub fn download(&self, package: &str, folder: &Path) -> Result<PathBuf> {
        again(|| self.program("apt-get").args(["--quiet", "download", package]).current_dir(folder).run())?;
        let entry = fs::read_dir(folder)?.next().with_context(|| format!("apt left no file of {package}"))?;
        Ok(entry?.path())
    }

    fn program(&self, name: &str) -> Program {
        let folder = |option: &str, name: &str| format!("{option}={}", self.folder.join(name).display());
        let options = [
            folder("Dir::State::lists", "lists"),
            folder("Dir::Cache::archives", "archives"),
            folder("Dir::Etc::sourcelist", "sources.list"),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            // In memory: apt's own are of other lists.
            "Dir::Cache::pkgcache=".to_owned(),
            "Dir::Cache::srcpkgcache=".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::Retries=3".to_owned(),
            // The user who downloads cannot look into a home directory.
            "APT::Sandbox::User=root".to_owned(),
        ];
        options.iter().fold(Program::new(name), |program, option| program.args(["-o", option]))
    }
}

/// One line for each of Debian's sources on this machine, and the backports beside each release.
fn sources(component: &str) -> Result<String> {
    const FIELDS: &str = "$(ORIGIN) $(REPO_URI) $(RELEASE) $(CODENAME)";
    let targets = Program::new("apt-get")
        .args(["indextargets", "--format", FIELDS, "Created-By: Packages", "Component: main"])
        .output()
        .context("no apt here: the kernels of the matrix are Debian's")?;
    let signed = if Path::new(KEYRING).exists() { format!(" signed-by={KEYRING}") } else { String::new() };
    let lines = lines(&targets, &signed, component);
    ensure!(!lines.is_empty(), "apt has no source of Debian's here: `apt-get update`, or other kernels, are needed");
    Ok(lines.join("\n") + "\n")
}

fn lines(targets: &str, signed: &str, component: &str) -> Vec<String> {
    let line = |uri: &str, release: &str| format!("deb [arch=amd64{signed}] {uri} {release} {component}");
    let mut lines = Vec::new();
    for target in targets.lines() {
        let [origin, uri, release, codename] = target.split_whitespace().collect::<Vec<_>>()[..] else { continue };
        if origin != "Debian" {
            continue;
        }
        lines.push(line(uri, release));
        if release == codename && !codename.contains('-') {
            lines.push(line(uri, &format!("{codename}-backports")));
        }
    }
    lines.sort();
    lines.dedup();
    lines
}

fn age(path: &Path) -> Option<Duration> {
    SystemTime::now().duration_since(path.metadata().ok()?.modified().ok()?).ok()
}

/// A mirror may be busy.
fn again(work: impl Fn() -> Result<()>) -> Result<()> {
    for attempt in 1..=ATTEMPTS {
        match work() {
            Ok(()) => return Ok(()),
            Err(error) if attempt == ATTEMPTS => return Err(error),
            Err(error) => println!("vm: {error:#}: once more"),
        }
        thread::sleep(Duration::from_secs(u64::from(attempt) * 5));
    }
    bail!("never tried")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debians_sources_and_the_backports_beside_them() {
        let targets = "Debian http://mirror/debian/ bookworm bookworm\n\
                       Debian http://mirror/debian/ bookworm-updates bookworm-updates\n\
                       Debian http://mirror/security/ bookworm-security bookworm-security\n\
                       Other http://elsewhere/ main main\n";
        let found = lines(targets, "", "main");
        let expected = [
            "deb [arch=amd64] http://mirror/debian/ bookworm main",
            "deb [arch=amd64] http://mirror/debian/ bookworm-backports main",
            "deb [arch=amd64] http://mirror/debian/ bookworm-updates main",
            "deb [arch=amd64] http://mirror/security/ bookworm-security main",
        ];
        assert_eq!(found, expected);
    }
}
