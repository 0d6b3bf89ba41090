//! The commands of Try it for language models. Like those in `commands.rs` they take ids and return
//! views.

use crate::app_state::Shell;
use crate::commands::{Answer, status};
use crate::run_chat::{ChatAnswerView, ChatRequest, QuestionsView};
use std::sync::Arc;
use tauri::State;

/// Begins the answer of a run's model to a message, and returns its number.
#[tauri::command]
pub async fn chat_begin(
    shell: State<'_, Arc<Shell>>,
    run: String,
    request: ChatRequest,
) -> Answer<u32> {
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        // Two models may not fit into memory.
        shell.results.free_model(&run)?;
        let available_bytes = shell.readings.now().available_to_ebb_bytes();
        shell.chat.begin(&run, folder, request, available_bytes)
    })
    .await
}

/// What there is of an answer.
#[tauri::command]
pub async fn chat_answer(shell: State<'_, Arc<Shell>>, answer: u32) -> Answer<ChatAnswerView> {
    status(shell, move |shell| shell.chat.answer(answer)).await
}

/// Ends an answer with what there is of it.
#[tauri::command]
pub async fn chat_stop(shell: State<'_, Arc<Shell>>, answer: u32) -> Answer<()> {
    status(shell, move |shell| {
        shell.chat.stop(answer);
        Ok(())
    })
    .await
}

/// Asks the questions of a dropped file before and after the training; `questions` reports the
/// progress.
#[tauri::command]
pub async fn ask_questions(shell: State<'_, Arc<Shell>>, run: String, input: u32) -> Answer<()> {
    status(shell, move |shell| {
        let folder = shell.runs.folder(&run)?;
        let path = shell.try_it.path(input)?;
        shell.results.free_model(&run)?;
        let available_bytes = shell.readings.now().available_to_ebb_bytes();
        shell.chat.ask(&run, folder, &path, available_bytes)
    })
    .await
}

/// How far the questions of a run are, or their results; `None` if there are none.
#[tauri::command]
pub async fn questions(shell: State<'_, Arc<Shell>>, run: String) -> Answer<Option<QuestionsView>> {
    status(shell, move |shell| Ok(shell.chat.questions(&run))).await
}

/// Ends the questions of a run. Their results are forgotten.
#[tauri::command]
pub async fn stop_questions(shell: State<'_, Arc<Shell>>, run: String) -> Answer<()> {
    status(shell, move |shell| {
        shell.chat.stop_questions(&run);
        Ok(())
    })
    .await
}
