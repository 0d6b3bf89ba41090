//! The tokens of the documents of one split. Those of few texts are in memory. Those of many texts
//! are in a file in Ebb's home, which every later run on the same texts uses again.

use super::token_file::{TokenFileKey, TokenFileWriter, open_token_file};
use super::tokenizer::on_tokenizer_thread;
use crate::error::{Result, TrainError, at};
use crate::plan::MOST_TEXT_BYTES_IN_MEMORY;
use crate::preparation::{Preparation, PreparationWork, stopped_before_start};
use dataset::{
    ConversationEncoder, DatasetError, Documents, LeftOut, Split, TextEncoder, TextInspection,
    TokenSink, TokenWidth, Tokenizer, tokenize_conversations, tokenize_documents,
};
use runlog::{RunStore, format_bytes};
use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Changes when the same texts and vocabulary give other tokens than before.
const VERSION: u32 = 1;
/// A token file that no run has used for this long is removed.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Texts of at most this size are tokenized into memory if the disk refuses the tokens.
const MOST_BYTES_WITHOUT_DISK: u64 = 1 << 30;

/// How texts become tokens.
#[derive(Clone, Copy)]
pub(crate) enum Encoding<'a> {
    /// Texts as they are.
    Documents(&'a Tokenizer),
    /// Conversations, with a bit that marks the learned tokens.
    Conversations(&'a ConversationEncoder),
}

/// The documents of one split, and how they are tokenized.
#[derive(Clone, Copy)]
pub(crate) struct SplitDocuments<'a> {
    pub found: &'a TextInspection,
    pub part: Split,
    pub encoding: Encoding<'a>,
    pub threads: u32,
    pub preparation: Preparation<'a>,
}

impl SplitDocuments<'_> {
    /// Opens the tokens, and tokenizes the documents first if there are none yet.
    ///
    /// # Errors
    /// A text file is missing or has changed since the inspection, the tokenizer cannot encode a
    /// text, the user stops the run, or the disk has no space for many tokens.
    pub fn open(self) -> Result<Documents> {
        self.open_in(&TokenFiles::in_home())
    }

    fn open_in(self, files: &TokenFiles) -> Result<Documents> {
        on_tokenizer_thread(|| {
            let key = self.key().filter(|_| self.bytes() > files.most_in_memory);
            match key {
                Some(key) => self.open_file(files, key),
                None => self.in_memory(),
            }
        })
    }

    /// Opens the file with the tokens. If it is missing, damaged or for earlier texts, writes it.
    fn open_file(self, files: &TokenFiles, key: TokenFileKey) -> Result<Documents> {
        let path = files.path(key);
        if let Some(documents) = open_token_file(&path, key) {
            return Ok(documents);
        }
        let left_out = RefCell::new(LeftOut::default());
        let opened = files
            .write(&path, |draft| {
                *left_out.borrow_mut() = self.write(draft, key)?;
                Ok(())
            })
            .and_then(|()| {
                // Another process may have replaced it, or the texts have changed meanwhile.
                let changed = || std::io::Error::other("the texts or this file have changed");
                open_token_file(&path, key).ok_or_else(|| at(&path)(changed()))
            });
        match opened {
            Err(TrainError::File { .. }) if self.bytes() <= MOST_BYTES_WITHOUT_DISK => {
                self.in_memory()
            }
            opened => Ok(opened?.with_left_out(left_out.into_inner())),
        }
    }

    fn in_memory(self) -> Result<Documents> {
        let mut documents = Documents::with_width(self.width());
        let left_out = documents.append(|sink| self.tokenize(sink));
        let left_out = left_out.map_err(stopped_before_start)?;
        Ok(documents.with_left_out(left_out))
    }

    fn write(self, path: &Path, key: TokenFileKey) -> Result<LeftOut> {
        let mut writer = TokenFileWriter::create(path, self.width()).map_err(at(path))?;
        let tokenized = self.tokenize(&mut writer);
        if let Some(error) = writer.take_failure() {
            return Err(at(path)(error));
        }
        let left_out = tokenized.map_err(stopped_before_start)?;
        writer.finish(key).map_err(at(path))?;
        Ok(left_out)
    }

    fn tokenize(&self, sink: &mut dyn TokenSink) -> std::result::Result<LeftOut, DatasetError> {
        let work = self.begin();
        let goes_on = |bytes| work.goes_on(bytes);
        let threads = self.threads as usize;
        match self.encoding {
            Encoding::Documents(tokenizer) => {
                let mut encoder = TextEncoder::new(tokenizer, threads);
                tokenize_documents(self.found, self.part, &mut encoder, &goes_on, sink)?;
                Ok(LeftOut::default())
            }
            Encoding::Conversations(encoder) => {
                let (found, part) = (self.found, self.part);
                tokenize_conversations(found, part, encoder, threads, &goes_on, sink)
            }
        }
    }

    /// Bytes of a token.
    fn width(&self) -> TokenWidth {
        match self.encoding {
            Encoding::Documents(tokenizer) => TokenWidth::for_tokenizer(tokenizer),
            // The highest bit tells whether it is learned.
            Encoding::Conversations(_) => TokenWidth::Four,
        }
    }

    fn begin(&self) -> PreparationWork<'_> {
        let bytes = self.bytes();
        let message = format!(
            "Tokenizing {} of {} texts",
            format_bytes(bytes),
            match self.part {
                Split::Train => "training",
                Split::HeldOut => "held-out",
                Split::Test => "test",
            }
        );
        self.preparation.begin(message, bytes)
    }

    fn bytes(&self) -> u64 {
        self.found.split_bytes(self.part)
    }

    /// The key of the tokens; `None` if a text file is missing.
    fn key(&self) -> Option<TokenFileKey> {
        let mut content = DefaultHasher::new();
        VERSION.hash(&mut content);
        self.found.content_hash(self.part).hash(&mut content);
        match self.encoding {
            Encoding::Documents(tokenizer) => tokenizer.to_json().hash(&mut content),
            Encoding::Conversations(encoder) => encoder.hash().hash(&mut content),
        }
        let mut sources = DefaultHasher::new();
        for file in &self.found.files {
            let found = std::fs::metadata(self.found.folder.join(&file.path)).ok()?;
            file.path.hash(&mut sources);
            (found.len(), found.modified().ok()).hash(&mut sources);
        }
        Some(TokenFileKey {
            content: content.finish(),
            sources: sources.finish(),
        })
    }
}

/// The folder of token files.
struct TokenFiles {
    folder: PathBuf,
    /// Texts of at most this many bytes have no token file.
    most_in_memory: u64,
}

impl TokenFiles {
    fn in_home() -> Self {
        TokenFiles {
            folder: RunStore::default_root().with_file_name("tokens"),
            most_in_memory: MOST_TEXT_BYTES_IN_MEMORY,
        }
    }

    fn path(&self, key: TokenFileKey) -> PathBuf {
        self.folder.join(format!("{:016x}.tokens", key.content))
    }

    /// Lets `write` write a draft, which then gets its name. The folder is private, because tokens
    /// show the texts.
    fn write(&self, path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        if let Some(home) = self.folder.parent() {
            disk::create_dir_all(home).map_err(at(home))?;
        }
        match disk::create_private_dir(&self.folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(at(&self.folder)(error));
            }
            _ => self.remove_unused(),
        }
        let draft = disk::draft_path(path);
        let written = write(&draft).and_then(|()| disk::rename(&draft, path).map_err(at(path)));
        if written.is_err() {
            // It may not exist.
            let _ = disk::remove_file(&draft);
        }
        written
    }

    /// Removes files that were not used for a long time, also drafts that crashes left.
    fn remove_unused(&self) {
        for path in disk::list(&self.folder).unwrap_or_default() {
            let modified = std::fs::metadata(&path).and_then(|file| file.modified());
            let age = modified.map(|modified| SystemTime::now().duration_since(modified));
            if age.is_ok_and(|age| age.is_ok_and(|age| age > UNUSED)) {
                // What cannot be removed now is removed by a later run.
                let _ = disk::remove_file(&path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_control::{Control, Request};
    use dataset::{DetectedDataset, InspectOptions, TextOptions, Vocabulary, detect};

    /// A folder of texts, and a folder for token files that is used for texts of any size.
    struct Place {
        texts: tempfile::TempDir,
        home: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Self {
            let place = Place {
                texts: tempfile::tempdir().expect("a temporary folder"),
                home: tempfile::tempdir().expect("a temporary folder"),
            };
            for name in ["a", "b", "c"] {
                place.put(name, &format!("{name} day of rain. ").repeat(200));
            }
            place
        }

        fn put(&self, name: &str, text: &str) {
            let path = self.texts.path().join(format!("{name}.txt"));
            std::fs::write(path, text).expect("it can be written");
        }

        fn found(&self) -> TextInspection {
            let (options, texts) = (InspectOptions::default(), TextOptions::default());
            let found = detect(self.texts.path(), &options, &texts, &|_| {});
            match found.expect("it can be read") {
                DetectedDataset::Texts(found) => found,
                DetectedDataset::Images(_) => panic!("the folder has documents"),
            }
        }

        fn files(&self) -> TokenFiles {
            TokenFiles {
                folder: self.home.path().join("ebb/tokens"),
                most_in_memory: 0,
            }
        }

        fn stored(&self) -> Vec<PathBuf> {
            disk::list(&self.files().folder).unwrap_or_default()
        }
    }

    fn split<'a>(found: &'a TextInspection, tokenizer: &'a Tokenizer) -> SplitDocuments<'a> {
        SplitDocuments {
            found,
            part: Split::Train,
            encoding: Encoding::Documents(tokenizer),
            threads: 2,
            preparation: Preparation::default(),
        }
    }

    fn tokens(documents: &Documents) -> Vec<Vec<u32>> {
        let document = |index: usize| {
            let places = 0..documents.length(index);
            places.map(|at| documents.token(index, at)).collect()
        };
        (0..documents.len()).map(document).collect()
    }

    #[test]
    fn tokens_are_written_once_and_used_again() {
        let (place, tokenizer) = (Place::new(), Tokenizer::bytes());
        let found = place.found();
        let in_memory = split(&found, &tokenizer).in_memory().expect("it is read");
        for _ in 0..2 {
            let opened = split(&found, &tokenizer).open_in(&place.files());
            let opened = opened.expect("it is read");
            assert!(in_memory.is_in_memory() && !opened.is_in_memory());
            assert_eq!(tokens(&opened), tokens(&in_memory));
            assert_eq!(opened.bytes(), in_memory.bytes());
        }
        let [file] = place.stored().try_into().expect("there is one file");
        // Nothing is read again: the user has already stopped, and the tokens are there.
        let control = Control::default();
        control.send(Request::Stop);
        let again = SplitDocuments {
            preparation: Preparation::new(&control, None),
            ..split(&found, &tokenizer)
        };
        assert!(again.open_in(&place.files()).is_ok());
        let learned = Tokenizer::train(Vocabulary::BytePairs, 300, ["a day of rain"].into_iter());
        let learned = learned.expect("there is text");
        let opened = split(&found, &learned).open_in(&place.files());
        assert!(opened.is_ok_and(|documents| documents.token_count() < in_memory.token_count()));
        assert!(place.stored().len() == 2 && place.stored().contains(&file));
    }

    #[test]
    fn damaged_tokens_are_written_again() {
        let (place, tokenizer) = (Place::new(), Tokenizer::bytes());
        let found = place.found();
        let open = || split(&found, &tokenizer).open_in(&place.files());
        let whole = tokens(&open().expect("it is read"));
        let [file] = place.stored().try_into().expect("there is one file");
        let intact = std::fs::read(&file).expect("it is there");
        let mut damaged = intact.clone();
        damaged[40] ^= 1;
        std::fs::write(&file, damaged).expect("it can be written");
        assert_eq!(tokens(&open().expect("it is read")), whole);
        assert_eq!(std::fs::read(&file).ok(), Some(intact));
    }

    #[test]
    fn changed_texts_are_tokenized_again() {
        let (place, tokenizer) = (Place::new(), Tokenizer::bytes());
        let before = place.found();
        let open = |found: &TextInspection| split(found, &tokenizer).open_in(&place.files());
        let first = tokens(&open(&before).expect("it is read"));
        for name in ["a", "b", "c"] {
            place.put(name, &format!("{name} day of sleet. ").repeat(200));
        }
        let outcome = open(&before).map(|documents| documents.len());
        assert!(
            matches!(
                outcome,
                Err(TrainError::Data(DatasetError::FileChanged { .. }))
            ),
            "{outcome:?}"
        );
        let second = tokens(&open(&place.found()).expect("it is read"));
        assert_ne!(second, first);
    }

    #[test]
    fn a_folder_that_cannot_be_written_leaves_few_tokens_in_memory() {
        let (place, tokenizer) = (Place::new(), Tokenizer::bytes());
        let found = place.found();
        std::fs::write(place.home.path().join("ebb"), "in the way").expect("it can be written");
        let opened = split(&found, &tokenizer).open_in(&place.files());
        assert!(opened.expect("it is read").is_in_memory());
    }

    #[test]
    fn files_that_were_not_used_for_long_are_removed() {
        let (place, tokenizer) = (Place::new(), Tokenizer::bytes());
        let found = place.found();
        let folder = place.files().folder;
        disk::create_dir_all(&folder).expect("it can be made");
        let old = folder.join(".draft-old.tokens.7");
        std::fs::write(&old, "half").expect("it can be written");
        let file = std::fs::File::open(&old).expect("it is there");
        let long_ago = SystemTime::now() - 2 * UNUSED;
        file.set_modified(long_ago).expect("its time can be set");
        let opened = split(&found, &tokenizer).open_in(&place.files());
        assert!(opened.is_ok() && !old.exists());
        assert_eq!(place.stored().len(), 1);
    }
}
