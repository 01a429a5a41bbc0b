//! A support bundle: objects, events and logs of clouds and of the operator as one archive without secrets.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};

use crate::bundle::mask::Masker;

pub(crate) mod collect;
pub(crate) mod mask;

/// A file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Writes an archive whose entries are below one directory. **Invariant:** every text passes the masker, and only the
/// owner can read the file.
pub(crate) fn write(
    path: &Path,
    directory: &str,
    entries: &[Entry],
    masker: &Masker,
    time: u64,
) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".partial");
    let draft = PathBuf::from(draft);
    let written =
        write_draft(&draft, directory, entries, masker, time).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // The draft may not exist; the first failure is the one to report.
        let _ = fs::remove_file(&draft);
    }
    written
}

fn write_draft(
    draft: &Path,
    directory: &str,
    entries: &[Entry],
    masker: &Masker,
    time: u64,
) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(draft)?;
    let mut archive = Builder::new(GzEncoder::new(file, Compression::default()));
    for Entry { path, text } in entries {
        let text = masker.mask(text);
        let mut header = Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(time);
        archive.append_data(&mut header, format!("{directory}/{path}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    use flate2::read::GzDecoder;
    use serde_json::json;
    use tar::Archive;

    use super::*;

    #[test]
    fn no_text_reaches_the_archive_unmasked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("b.tar.gz");
        let secret = json!({ "metadata": { "name": "s" }, "data": { "password": "c2VjcmV0LXZhbHVl" } });
        let entries = ["a/b.log", "c.yaml"]
            .map(|path| Entry { path: path.to_owned(), text: format!("{path}: secret-value\n") });
        write(&path, "bundle", &entries, &Masker::new(&[secret]), 0).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut archive = Archive::new(GzDecoder::new(fs::File::open(&path).unwrap()));
        let found: Vec<(String, String)> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut text = String::new();
                entry.read_to_string(&mut text).unwrap();
                (entry.path().unwrap().display().to_string(), text)
            })
            .collect();
        assert_eq!(
            found,
            [
                ("bundle/a/b.log".to_owned(), "a/b.log: <masked>\n".to_owned()),
                ("bundle/c.yaml".to_owned(), "c.yaml: <masked>\n".to_owned()),
            ]
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no draft is left");
    }
}
