//! What must hold for the repository itself, whatever the machine: its layers, its data files, its links, its glossary, and the tests that its
//! specification names. Nothing of Hinterland runs here.

mod benches;
mod cases;
mod commands;
mod files;
mod fresh;
mod glossary;
mod layering;
mod lengths;
mod links;
mod promises;
mod rooms;
mod strict;
