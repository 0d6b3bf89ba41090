//! A table beside images: its rows name images and give regression targets, classes, groups or
//! splits. Only tables of the folder are opened. A name in a row is looked up among the listed
//! images.

mod image_index;
mod matched_rows;

mod numeric_columns;

mod column_roles;

mod read_table;

mod join_table;

pub(crate) use join_table::{
    Groups, apply, describe_groups, describe_targets, group_images, select_targets,
};
pub(crate) use read_table::{ImageTable, read};
