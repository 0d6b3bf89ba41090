//! macOS: `IOPowerSources` for the battery, `NSProcessInfo` for low power mode and heat. Same
//! interface as `linux.rs`.

use super::{PowerSource, PowerState};
use crate::source::thermal_state;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::AnyObject;
use objc2_foundation::{NSArray, NSDictionary, NSNumber, NSProcessInfo, NSString};

/// `kIOPSTypeKey`, and its value of a battery inside the machine.
const TYPE: (&str, &str) = ("Type", "InternalBattery");
/// `kIOPSPowerSourceStateKey`, and its value while the battery is being discharged.
const STATE: (&str, &str) = ("Power Source State", "Battery Power");
const CAPACITY: &str = "Current Capacity";
const MAX_CAPACITY: &str = "Max Capacity";

#[link(name = "IOKit", kind = "framework")]
unsafe extern "C-unwind" {
    /// A snapshot of all power sources, retained.
    fn IOPSCopyPowerSourcesInfo() -> *mut AnyObject;
    /// The power sources of a snapshot, a retained array.
    fn IOPSCopyPowerSourcesList(info: &AnyObject) -> *mut NSArray<AnyObject>;
    /// The description of one of them, which the snapshot owns.
    fn IOPSGetPowerSourceDescription(
        info: &AnyObject,
        source: &AnyObject,
    ) -> *mut NSDictionary<NSString, AnyObject>;
}

/// The power of a Mac.
pub(super) struct Power;

impl Power {
    pub(super) fn open() -> Self {
        Power
    }
}

impl PowerSource for Power {
    fn read(&mut self) -> PowerState {
        autoreleasepool(|_| {
            let process = NSProcessInfo::processInfo();
            PowerState {
                low_power: Some(process.isLowPowerModeEnabled()),
                thermal: Some(thermal_state(process.thermalState())),
                ..battery().unwrap_or_default()
            }
        })
    }
}

/// What the battery inside the machine reports; `None` if there is none, as in a desktop Mac.
fn battery() -> Option<PowerState> {
    // SAFETY: both functions return a retained object or null. Arrays and dictionaries of Core
    // Foundation are those of Foundation.
    let (info, sources) = unsafe {
        let info = Retained::from_raw(IOPSCopyPowerSourcesInfo())?;
        let sources = Retained::from_raw(IOPSCopyPowerSourcesList(&info))?;
        (info, sources)
    };
    let batteries = (0..sources.count()).filter_map(|index| {
        let source = sources.objectAtIndex(index);
        // SAFETY: the source is of this snapshot, which owns the description and lives on.
        unsafe { Retained::retain(IOPSGetPowerSourceDescription(&info, &source)) }
    });
    let mut batteries =
        batteries.filter(|battery| word(battery, TYPE.0).as_deref() == Some(TYPE.1));
    let battery = batteries.next()?;
    let charge = number(&battery, CAPACITY).zip(number(&battery, MAX_CAPACITY));
    Some(PowerState {
        on_battery: Some(word(&battery, STATE.0).as_deref() == Some(STATE.1)),
        charge_fraction: charge
            .filter(|(_, most)| *most > 0.0)
            .map(|(now, most)| now / most),
        ..PowerState::default()
    })
}

fn word(description: &NSDictionary<NSString, AnyObject>, key: &str) -> Option<String> {
    let value = description.objectForKey(&NSString::from_str(key))?;
    Some(value.downcast::<NSString>().ok()?.to_string())
}

fn number(description: &NSDictionary<NSString, AnyObject>, key: &str) -> Option<f64> {
    let value = description.objectForKey(&NSString::from_str(key))?;
    Some(value.downcast::<NSNumber>().ok()?.doubleValue())
}
