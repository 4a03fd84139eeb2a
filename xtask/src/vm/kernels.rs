//! Debian's kernels: the newest of a series, unpacked into the cache, never installed.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use super::apt::Apt;
use crate::{layout, process::Program};

/// Best first: the smaller one for virtual machines has all that is asked for.
const FLAVOURS: &[&str] = &["-cloud-amd64", "-cloud-amd64-unsigned", "-amd64", "-amd64-unsigned"];

/// A kernel that can be booted.
pub struct Kernel {
    pub series: String,
    pub package: String,
    pub image: PathBuf,
}

/// The newest of the series that apt offers; if apt cannot be asked, the newest that is there already.
pub fn get(series: &str) -> Result<Kernel> {
    ensure!(env::consts::ARCH == "x86_64", "the kernels of the matrix are for x86-64");
    let have = present(series);
    match Apt::open(&layout::kernels_dir().join("apt"), "main").and_then(|apt| fetch(&apt, series)) {
        Ok(kernel) => Ok(kernel),
        Err(error) => match newest(series, have) {
            Some(package) => {
                println!("vm: {error:#}: taking {package}, which is there already");
                Ok(kernel(series, package))
            }
            None => Err(error).with_context(|| format!("no kernel of series {series}")),
        },
    }
}

fn fetch(apt: &Apt, series: &str) -> Result<Kernel> {
    let offered = apt.packages(&format!("linux-image-{series}."))?;
    let package = newest(series, offered).with_context(|| format!("apt offers no kernel of series {series}"))?;
    let kernel = kernel(series, package);
    if !kernel.image.is_file() {
        println!("vm: downloading {}", kernel.package);
        unpack(apt, &kernel)?;
    }
    Ok(kernel)
}

fn unpack(apt: &Apt, kernel: &Kernel) -> Result<()> {
    let folder = layout::kernels_dir().join(format!("{}.unfinished", kernel.package));
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let (download, files) = (folder.join("download"), folder.join("files"));
    fs::create_dir_all(&download).with_context(|| format!("cannot make {}", download.display()))?;
    let archive = apt.download(&kernel.package, &download)?;
    Program::new("dpkg-deb").arg("-x").arg(&archive).arg(&files).run()?;
    let image = fs::read_dir(files.join("boot"))?
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with("vmlinuz-"))
        .with_context(|| format!("{} has no vmlinuz", kernel.package))?;
    // Everything is built in that the suite needs: the modules are left behind.
    fs::rename(image.path(), &kernel.image).with_context(|| format!("cannot write {}", kernel.image.display()))?;
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))
}

fn kernel(series: &str, package: String) -> Kernel {
    let image = layout::kernels_dir().join(&package);
    Kernel { series: series.to_owned(), package, image }
}

fn present(series: &str) -> Vec<String> {
    let entries = fs::read_dir(layout::kernels_dir()).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&format!("linux-image-{series}.")) && is_file(name)).collect()
}

fn is_file(name: &str) -> bool {
    Path::new(&layout::kernels_dir()).join(name).is_file()
}

fn newest(series: &str, packages: Vec<String>) -> Option<String> {
    packages
        .into_iter()
        .filter_map(|package| Some((rank(series, &package)?, package)))
        .max()
        .map(|(_, package)| package)
}

/// Flavour before version: the number in a package's name grows in each alike.
fn rank(series: &str, package: &str) -> Option<(usize, Vec<u64>)> {
    let version = package.strip_prefix("linux-image-")?.strip_prefix(series)?.strip_prefix('.')?;
    let flavour = FLAVOURS.iter().position(|flavour| {
        // The longer one ends like the shorter one.
        version.strip_suffix(flavour).is_some_and(|rest| !rest.ends_with("-cloud") && !rest.ends_with("-rt"))
    })?;
    let numbers = version.strip_suffix(FLAVOURS[flavour])?.split(['.', '-', '+']);
    Some((FLAVOURS.len() - flavour, numbers.filter_map(|number| number.parse().ok()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newest_of(series: &str, packages: &[&str]) -> Option<String> {
        newest(series, packages.iter().map(|&package| package.to_owned()).collect())
    }

    #[test]
    fn the_newest_of_the_series_in_the_best_flavour() {
        let packages = [
            "linux-image-6.1.0-9-cloud-amd64",
            "linux-image-6.1.0-57-cloud-amd64",
            "linux-image-6.1.0-57-cloud-amd64-unsigned",
            "linux-image-6.1.0-58-amd64",
            "linux-image-6.1.0-57-cloud-amd64-dbg",
            "linux-image-6.12.117+deb12-cloud-amd64",
            "linux-image-6.12.43+deb12-cloud-amd64",
            "linux-image-6.12-cloud-amd64",
        ];
        assert_eq!(newest_of("6.1", &packages).as_deref(), Some("linux-image-6.1.0-57-cloud-amd64"));
        assert_eq!(newest_of("6.12", &packages).as_deref(), Some("linux-image-6.12.117+deb12-cloud-amd64"));
        assert_eq!(newest_of("6.9", &packages), None);
        assert_eq!(newest_of("6.1", &["linux-image-6.1.0-58-rt-amd64"]), None);
    }
}
