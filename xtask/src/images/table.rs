//! The table of images, `images/images.toml`: which image holds which packages.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::store::Key;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// The Debian release that everything comes from.
    pub(crate) suite: String,
    /// What the minimal system has beyond the essential packages.
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
    /// A program of this workspace that the image carries.
    pub(crate) program: Option<String>,
}

impl Image {
    pub(crate) fn program(&self) -> Result<&str> {
        self.program.as_deref().with_context(|| format!("image {} carries no program", self.name))
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
        let table: Self =
            toml::from_str(&text).with_context(|| format!("{} is not right", path.display()))?;
        table.check().with_context(|| format!("{} is not right", path.display()))?;
        Ok(table)
    }

    pub(crate) fn images(&self) -> &[Image] {
        &self.image
    }

    /// The image of that name, or an error that lists the names there are.
    pub(crate) fn image(&self, name: &str) -> Result<&Image> {
        self.image.iter().find(|image| image.name == name).with_context(|| {
            let names: Vec<&str> = self.image.iter().map(|image| image.name.as_str()).collect();
            format!("there is no image {name:?}: the table has {}", names.join(", "))
        })
    }

    /// The number that an image runs as.
    pub(crate) fn user_id(&self, image: &Image) -> Result<u32> {
        if image.user == "root" {
            return Ok(0);
        }
        let user = self.user.iter().find(|user| user.name == image.user);
        user.map(|user| user.id)
            .with_context(|| format!("image {} runs as {}, who is no user", image.name, image.user))
    }

    /// The users as the base image reads them: a name and a number on each line.
    pub(crate) fn users(&self) -> String {
        self.user.iter().fold(String::new(), |all, user| all + &user.name + " " + &user.id.to_string() + "\n")
    }

    /// What the recipe is told about the image. The base comes from the builder, who knows where it is.
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

    /// Everything that an image is built from, its base included. Files of the recipe are among it.
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
                bail!("image {} is there twice", image.name);
            }
            if let Some(base) = &image.base
                && !earlier.iter().any(|other| other.name == *base)
            {
                bail!("image {} is based on {base}, which does not come before it", image.name);
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
    fn the_projects_own_table_is_right() -> Result<()> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../images");
        let table = Table::read(&directory)?;
        for image in table.images() {
            assert!(directory.join(&image.recipe).join("Containerfile").exists(), "{}", image.name);
            table.key(&directory, image)?;
        }
        Ok(())
    }

    #[test]
    fn mistakes_in_the_table_are_named() {
        let message = |text: &str| checked(text).err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(message(&row("x", "user = \"b\"")).contains("b, who is no user"));
        assert!(message(&row("x", "user = \"root\"")).contains("root_reason"));
        assert!(message(&row("x", "user = \"a\"\nbase = \"y\"")).contains("does not come before it"));
        assert!(message(&row("x", "user = \"a\"\ncolour = \"red\"")).contains("colour"));
        assert!(message("[[image]]\nname = \"x\"").contains("missing field"));
        let twice = "[[user]]\nname = \"b\"\nid = 42401\n";
        assert!(message(&format!("{twice}{}", row("x", "user = \"a\""))).contains("same number"));
    }

    #[test]
    fn a_row_becomes_build_arguments() -> Result<()> {
        let table = checked(&row("x", "user = \"a\"\npackages = [\"p\", \"q\"]"))?;
        let arguments = table.arguments(table.image("x")?)?;
        assert_eq!(arguments, [("USER", "42401:42401".to_owned()), ("PACKAGES", "p q".to_owned())]);
        Ok(())
    }
}
