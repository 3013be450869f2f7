//! The kernel of a guest: Debian's, out of its package, prepared to start fast where it is emulated. It is unpacked (a kernel that unpacks itself does that slowly), and its modules lose
//! their signatures (checking them is slow, and nothing requires it).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::apt::{Apt, make_empty, run};
use crate::archive::Archive;

/// The modules that a guest uses; those that they depend on are found.
const MODULES: [&str; 14] = [
    "virtio_pci",
    "virtio_console",
    "virtio_net",
    "9pnet_virtio",
    "9p",
    "overlay",
    "dummy",
    "veth",
    "bridge",
    "ib_uverbs",
    // rdma_rxe computes checksums with it, and loads it by a name that is not a dependency.
    "crc32_generic",
    "rdma_rxe",
    "rdma_cm",
    "rdma_ucm",
];
/// Counted up when what is made of a package changes, so that older folders are made again.
const RECIPE: &str = "1";

/// One of Debian's kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Version {
    /// Debian 12's
    #[value(name = "6.1")]
    Six1,
    /// Debian 13's, which Debian 12 has too. A WRITE becomes visible there with its tail first
    #[value(name = "6.12")]
    Six12,
}

impl Version {
    /// The version as Debian names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Six1 => "6.1",
            Self::Six12 => "6.12",
        }
    }

    /// The package of the newest such kernel, among the dependencies of packages that may name it.
    fn package(self, apt: &Apt) -> Result<String> {
        let start = format!("linux-image-{}.", self.name());
        // The second is that of the Debian release itself, whichever kernel that has.
        for names_it in [format!("linux-image-{}-amd64", self.name()), "linux-image-amd64".into()] {
            let Ok(dependencies) = apt.dependencies(&names_it) else { continue };
            if let Some(package) = dependencies.into_iter().find(|name| name.starts_with(&start)) {
                return Ok(package);
            }
        }
        bail!(
            "apt's sources have no package of a Linux {} kernel; Debian 12 with its security \
             updates has both 6.1 and 6.12",
            self.name()
        )
    }
}

/// A kernel that is ready to start.
pub(crate) struct Kernel {
    folder: PathBuf,
}

impl Kernel {
    /// The kernel in `cache`; downloads it first unless it is there.
    pub(crate) fn ready(cache: &Path, apt: &Apt, version: Version) -> Result<Self> {
        let kernel = Self { folder: cache.join(format!("kernel-{}", version.name())) };
        let stamp = kernel.folder.join("stamp");
        if fs::read_to_string(&stamp).is_ok_and(|made| made == RECIPE) {
            return Ok(kernel);
        }
        apt.update()?;
        let package = version.package(apt)?;
        let unpacked = cache.join("unpacked");
        apt.unpack(std::slice::from_ref(&package), &unpacked)?;
        make_empty(&kernel.folder)?;
        kernel.make(&unpacked).with_context(|| format!("Debian's {package} is not as expected"))?;
        fs::remove_dir_all(&unpacked)?;
        fs::write(stamp, RECIPE)?;
        Ok(kernel)
    }

    /// The kernel itself.
    pub(crate) fn image(&self) -> PathBuf {
        self.folder.join("vmlinux")
    }

    /// Adds the modules to the folder `modules` of an archive, with a list of their names in the
    /// order in which they can be loaded.
    pub(crate) fn add_modules(&self, archive: &mut Archive) -> Result<()> {
        archive.folder("modules")?;
        let order = fs::read_to_string(self.folder.join("order"))?;
        for name in order.lines() {
            let file = format!("{name}.ko");
            archive.file(&format!("modules/{file}"), &fs::read(self.folder.join(&file))?)?;
        }
        archive.file("modules/order", order.as_bytes())
    }

    fn make(&self, unpacked: &Path) -> Result<()> {
        let boot = unpacked.join("boot");
        let image = named(&boot, "vmlinuz-")?;
        let (program, payload) = payload_of(&image)?;
        let kernel = run(Command::new(program).args(["-d", "-c"]), payload)?;
        ensure!(kernel.starts_with(b"\x7fELF"), "unpacked kernel is not an ELF file");
        fs::write(self.image(), kernel)?;

        let mut files = BTreeMap::new();
        for folder in ["lib/modules", "usr/lib/modules"] {
            modules_in(&unpacked.join(folder), &mut files)?;
        }
        let mut order = Vec::new();
        for name in MODULES {
            self.load(name, &files, &mut order)?;
        }
        fs::write(self.folder.join("order"), order.join("\n") + "\n")?;
        Ok(())
    }

    /// Adds a module after those that it depends on.
    fn load(&self, name: &str, files: &Files, order: &mut Vec<String>) -> Result<()> {
        if order.iter().any(|other| other == name) {
            return Ok(());
        }
        // A module without a file is built into the kernel. If it is not, a module that needs it
        // fails to load, or a device is missing, and the guest reports that.
        let Some(file) = files.get(name) else { return Ok(()) };
        let content = fs::read(file)?;
        let content = match file.extension().and_then(|kind| kind.to_str()) {
            Some("xz") => run(Command::new("xz").args(["-d", "-c"]), &content)?,
            Some("zst") => run(Command::new("zstd").args(["-d", "-c"]), &content)?,
            _ => content,
        };
        for dependency in dependencies_of(&content) {
            self.load(&dependency, files, order)?;
        }
        fs::write(self.folder.join(format!("{name}.ko")), without_signature(&content)?)?;
        order.push(name.to_owned());
        Ok(())
    }
}

/// The files of modules, by their names.
type Files = BTreeMap<String, PathBuf>;

fn modules_in(folder: &Path, files: &mut Files) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            modules_in(&entry.path(), files)?;
        } else if let Some((name, _)) = entry.file_name().to_string_lossy().split_once(".ko") {
            files.insert(name.replace('-', "_"), entry.path());
        }
    }
    Ok(())
}

/// The content of the file in `folder` whose name starts with `start`.
fn named(folder: &Path, start: &str) -> Result<Vec<u8>> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(start) {
            return Ok(fs::read(entry.path())?);
        }
    }
    bail!("no file {}*", folder.join(start).display())
}

/// The packed kernel in an image that a boot loader would start, and what unpacks it. The offsets
/// are those of Linux's boot protocol.
fn payload_of(image: &[u8]) -> Result<(&'static str, &[u8])> {
    let number = |offset: usize| -> Result<usize> {
        let bytes = image.get(offset..offset + 4).context("the kernel's image is too short")?;
        Ok(u32::from_le_bytes(bytes.try_into()?) as usize)
    };
    // Sectors of 512 bytes that come first; 0 means 4. The boot sector is not counted.
    let sectors = match number(0x1f1)? & 0xff {
        0 => 4,
        sectors => sectors,
    };
    let start = (sectors + 1) * 512 + number(0x248)?;
    // The last four bytes are the size when it is unpacked.
    let end = (start + number(0x24c)?).saturating_sub(4);
    let payload = image.get(start..end).context("the kernel's image is cut off")?;
    match payload {
        [0xfd, b'7', b'z', b'X', ..] => Ok(("xz", payload)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(("zstd", payload)),
        _ => bail!("unknown compression of the kernel, expected xz or zstd"),
    }
}

/// What a module says it depends on.
fn dependencies_of(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(place) = module.windows(KEY.len()).position(|bytes| bytes == KEY) else {
        return Vec::new();
    };
    let rest = &module[place + KEY.len()..];
    let list = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    let list = String::from_utf8_lossy(list);
    list.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

/// A module as it was before it was signed. A signature stands at the end: the signature itself, a
/// head of 12 bytes, the last four of which are the size of the signature, and a mark.
fn without_signature(module: &[u8]) -> Result<&[u8]> {
    const HEAD: usize = 12;
    let Some(signed) = module.strip_suffix(b"~Module signature appended~\n") else {
        return Ok(module);
    };
    let size = signed.last_chunk::<4>().map(|size| u32::from_be_bytes(*size) as usize);
    let end = size.and_then(|size| signed.len().checked_sub(HEAD + size));
    end.map(|end| &signed[..end]).context("a module's signature is longer than the module")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(magic: [u8; 4]) -> Vec<u8> {
        let mut image = vec![0; 512 * 3 + 64];
        image[0x1f1] = 1;
        image[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&12_u32.to_le_bytes());
        image[1024 + 16..1024 + 20].copy_from_slice(&magic);
        image
    }

    #[test]
    fn the_packed_kernel_is_found() {
        let xz = image([0xfd, b'7', b'z', b'X']);
        let (program, payload) = payload_of(&xz).unwrap();
        assert_eq!((program, payload.len()), ("xz", 8));
        assert_eq!(payload_of(&image([0x28, 0xb5, 0x2f, 0xfd])).unwrap().0, "zstd");
        assert!(
            payload_of(&image([0; 4])).unwrap_err().to_string().contains("unknown compression")
        );
        assert!(payload_of(&xz[..1024]).unwrap_err().to_string().contains("cut off"));
        assert!(payload_of(&xz[..100]).unwrap_err().to_string().contains("too short"));
    }

    #[test]
    fn modules_say_what_they_need() {
        let module = b"\x7fELF\0license=GPL\0depends=ib_core,ip6-udp-tunnel\0name=rdma_rxe\0";
        assert_eq!(dependencies_of(module), ["ib_core", "ip6_udp_tunnel"]);
        assert!(dependencies_of(b"\0depends=\0").is_empty());
        assert!(dependencies_of(b"none").is_empty());
    }

    #[test]
    fn signatures_are_cut_off() {
        let mut signed = b"module".to_vec();
        signed.extend(b"signature");
        signed.extend([0; 8]);
        signed.extend(9_u32.to_be_bytes());
        signed.extend(b"~Module signature appended~\n");
        assert_eq!(without_signature(&signed).unwrap(), b"module");
        assert_eq!(without_signature(b"module").unwrap(), b"module");
        assert!(without_signature(&signed[10..]).is_err());
    }

    #[test]
    fn modules_come_after_what_they_need() {
        let folder = std::env::temp_dir().join(format!("gossamer-modules-{}", std::process::id()));
        let kernel = Kernel { folder: folder.join("made") };
        fs::create_dir_all(&kernel.folder).unwrap();
        let tree = folder.join("kernel/drivers");
        fs::create_dir_all(&tree).unwrap();
        for (name, depends) in [("a", "b-b,c"), ("b-b", "c"), ("c", "")] {
            fs::write(tree.join(format!("{name}.ko")), format!("\0depends={depends}\0")).unwrap();
        }
        let mut files = Files::new();
        modules_in(&folder, &mut files).unwrap();
        let mut order = Vec::new();
        for name in ["a", "c", "built_in"] {
            kernel.load(name, &files, &mut order).unwrap();
        }
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(order, ["c", "b_b", "a"]);
    }
}
