//! Every command that the window may call.

use crate::{app_commands, commands, data_commands, results_commands, run_commands};
use tauri::Wry;
use tauri::ipc::Invoke;

/// Answers the commands of the page.
// tidy: table
pub fn handler() -> impl Fn(Invoke<Wry>) -> bool + Send + Sync + 'static {
    tauri::generate_handler![
        commands::welcome,
        commands::machine,
        commands::runs,
        commands::choose_folder,
        commands::choose_weights,
        commands::begin_with,
        commands::open_sample,
        commands::inspection,
        commands::estimate,
        commands::train,
        commands::resume,
        commands::control,
        commands::drill,
        commands::pull,
        data_commands::data,
        data_commands::data_samples,
        data_commands::data_thumbnail,
        data_commands::reveal_file,
        data_commands::choose_data,
        data_commands::data_duplicates,
        data_commands::draw_samples,
        data_commands::drawn_sample,
        results_commands::results,
        results_commands::evaluate_run,
        results_commands::leave_results,
        results_commands::result_samples,
        results_commands::result_thumbnail,
        results_commands::locate_data,
        results_commands::export_choices,
        results_commands::export_run,
        results_commands::try_choose,
        results_commands::try_picture,
        results_commands::try_text,
        results_commands::try_answers,
        results_commands::try_thumbnail,
        results_commands::try_saliency,
        results_commands::try_save,
        results_commands::open_input,
        results_commands::compare_results,
        results_commands::evaluate_input,
        commands::report_error,
        commands::epoch_seconds,
        run_commands::run_menu,
        run_commands::edit_run,
        run_commands::repeat_run,
        run_commands::reveal,
        run_commands::trash_run,
        app_commands::enable_actions,
        app_commands::quit,
        app_commands::close_window,
        app_commands::zoom,
    ]
}
