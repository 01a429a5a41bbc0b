//! The table of images, `images/images.toml`, with the packages of each.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::store::Key;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// The Debian release.
    pub(crate) suite: String,
    /// Packages of the minimal system besides the essential ones.
    pub(crate) bootstrap_packages: Vec<String>,
    image: Vec<Image>,
    user: Vec<User>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Image {
    pub(crate) name: String,
    description: String,
    pub(crate) recipe: String,
    pub(crate) base: Option<String>,
    user: String,
    root_reason: Option<String>,
    #[serde(default)]
    packages: Vec<String>,
    #[serde(default)]
    omit: Vec<String>,
    #[serde(default)]
    remove: Vec<String>,
    #[serde(default)]
    python_packages: Vec<String>,
    /// A program of this workspace in the image.
    pub(crate) program: Option<String>,
}

impl Image {
    pub(crate) fn program(&self) -> Result<&str> {
        self.program.as_deref().with_context(|| format!("image {} contains no program", self.name))
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct User {
    name: String,
    id: u32,
}

impl Table {
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        let path = directory.join("images.toml");
        let text = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        let table: Self = toml::from_str(&text).with_context(|| format!("{} is invalid", path.display()))?;
        table.check().with_context(|| format!("{} is invalid", path.display()))?;
        Ok(table)
    }

    pub(crate) fn images(&self) -> &[Image] {
        &self.image
    }

    /// The image of that name, or an error that lists all names.
    pub(crate) fn image(&self, name: &str) -> Result<&Image> {
        self.image.iter().find(|image| image.name == name).with_context(|| {
            let names: Vec<&str> = self.image.iter().map(|image| image.name.as_str()).collect();
            format!("there is no image {name:?}: the table has {}", names.join(", "))
        })
    }

    /// The user ID of an image.
    pub(crate) fn user_id(&self, image: &Image) -> Result<u32> {
        if image.user == "root" {
            return Ok(0);
        }
        let user = self.user.iter().find(|user| user.name == image.user);
        user.map(|user| user.id).with_context(|| {
            format!("image {} runs as {}, which is not a user of the table", image.name, image.user)
        })
    }

    /// The users for the base image: a name and an ID on each line.
    pub(crate) fn users(&self) -> String {
        self.user.iter().fold(String::new(), |all, user| all + &user.name + " " + &user.id.to_string() + "\n")
    }

    /// The build arguments of the image; the builder adds its base.
    pub(crate) fn arguments(&self, image: &Image) -> Result<Vec<(&'static str, String)>> {
        let id = self.user_id(image)?;
        let mut arguments = vec![("USER", format!("{id}:{id}"))];
        let lists = [
            ("PACKAGES", &image.packages),
            ("OMIT", &image.omit),
            ("REMOVE", &image.remove),
            ("PYTHON_PACKAGES", &image.python_packages),
        ];
        for (name, list) in lists {
            if !list.is_empty() {
                arguments.push((name, list.join(" ")));
            }
        }
        Ok(arguments)
    }

    /// The hash of an image's inputs: its row, the files of its recipe, and its base.
    pub(crate) fn key(&self, directory: &Path, image: &Image) -> Result<Key> {
        let mut key = if let Some(base) = &image.base {
            self.key(directory, self.image(base)?)?
        } else {
            let bootstrap = self.bootstrap_packages.join(" ");
            Key::default().text(&self.suite).text(&bootstrap).text(&self.users())
        };
        key = key.path(&directory.join(&image.recipe))?;
        if !image.python_packages.is_empty() {
            key = key.path(&directory.join("constraints-2025.1.txt"))?;
        }
        if image.program.is_some() {
            for source in ["../Cargo.toml", "../Cargo.lock", "../crates"] {
                key = key.path(&directory.join(source))?;
            }
        }
        for (name, value) in self.arguments(image)? {
            key = key.text(name).text(&value);
        }
        Ok(key)
    }

    fn check(&self) -> Result<()> {
        let mut ids = BTreeMap::new();
        for user in &self.user {
            if let Some(other) = ids.insert(user.id, &user.name) {
                bail!("users {other} and {} have the same number {}", user.name, user.id);
            }
        }
        for (position, image) in self.image.iter().enumerate() {
            if image.description.is_empty() {
                bail!("image {} has no description", image.name);
            }
            let root = self.user_id(image)? == 0;
            if root != image.root_reason.as_ref().is_some_and(|reason| !reason.is_empty()) {
                bail!("image {} needs a root_reason if, and only if, it runs as root", image.name);
            }
            let earlier = &self.image[..position];
            if earlier.iter().any(|other| other.name == image.name) {
                bail!("image {} is listed twice", image.name);
            }
            if let Some(base) = &image.base
                && !earlier.iter().any(|other| other.name == *base)
            {
                bail!("image {} is based on {base}, which the table does not list before it", image.name);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<Table> {
        let head = "suite = \"trixie\"\nbootstrap_packages = []\n[[user]]\nname = \"a\"\nid = 42401\n";
        let table: Table = toml::from_str(&format!("{head}{text}"))?;
        table.check()?;
        Ok(table)
    }

    fn row(name: &str, more: &str) -> String {
        format!("[[image]]\nname = \"{name}\"\ndescription = \"x\"\nrecipe = \"r\"\n{more}\n")
    }

    #[test]
    fn the_table_of_the_project_is_valid() -> Result<()> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../images");
        let table = Table::read(&directory)?;
        for image in table.images() {
            assert!(directory.join(&image.recipe).join("Containerfile").exists(), "{}", image.name);
            table.key(&directory, image)?;
        }
        Ok(())
    }

    #[test]
    fn a_mistake_in_the_table_is_reported() {
        let message = |text: &str| checked(text).err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(message(&row("x", "user = \"b\"")).contains("b, which is not a user"));
        assert!(message(&row("x", "user = \"root\"")).contains("root_reason"));
        assert!(message(&row("x", "user = \"a\"\nbase = \"y\"")).contains("does not list before it"));
        assert!(message(&row("x", "user = \"a\"\ncolour = \"red\"")).contains("colour"));
        assert!(message("[[image]]\nname = \"x\"").contains("missing field"));
        let twice = "[[user]]\nname = \"b\"\nid = 42401\n";
        assert!(message(&format!("{twice}{}", row("x", "user = \"a\""))).contains("same number"));
    }

    #[test]
    fn build_arguments_come_from_the_row() -> Result<()> {
        let table = checked(&row("x", "user = \"a\"\npackages = [\"p\", \"q\"]"))?;
        let arguments = table.arguments(table.image("x")?)?;
        assert_eq!(arguments, [("USER", "42401:42401".to_owned()), ("PACKAGES", "p q".to_owned())]);
        Ok(())
    }
}
