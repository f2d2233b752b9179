//! A test of a project that uses libibverbs: opens both devices and registers memory with them.
#![cfg(test)]

use std::ffi::CStr;
use std::os::raw::{c_char, c_int, c_void};
use std::ptr::null_mut;

#[link(name = "ibverbs")]
extern "C" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut c_void;
    fn ibv_free_device_list(list: *mut *mut c_void);
    fn ibv_get_device_name(device: *mut c_void) -> *const c_char;
    fn ibv_open_device(device: *mut c_void) -> *mut c_void;
    fn ibv_close_device(context: *mut c_void) -> c_int;
    fn ibv_alloc_pd(context: *mut c_void) -> *mut c_void;
    fn ibv_dealloc_pd(pd: *mut c_void) -> c_int;
    fn ibv_reg_mr(pd: *mut c_void, address: *mut c_void, length: usize, access: c_int) -> *mut c_void;
    fn ibv_dereg_mr(region: *mut c_void) -> c_int;
}

const LOCAL_WRITE: c_int = 1;

unsafe fn register_memory(device: *mut c_void) {
    let mut memory = vec![0u8; 1 << 16];
    let context = ibv_open_device(device);
    assert_ne!(context, null_mut());
    let pd = ibv_alloc_pd(context);
    assert_ne!(pd, null_mut());
    let region = ibv_reg_mr(pd, memory.as_mut_ptr().cast(), memory.len(), LOCAL_WRITE);
    assert_ne!(region, null_mut());
    assert_eq!(ibv_dereg_mr(region), 0);
    assert_eq!(ibv_dealloc_pd(pd), 0);
    assert_eq!(ibv_close_device(context), 0);
}

#[test]
fn registers_memory_with_every_device() {
    unsafe {
        let mut count = 0;
        let list = ibv_get_device_list(&mut count);
        assert_ne!(list, null_mut());
        let mut names = Vec::new();
        for i in 0..count as usize {
            let device = *list.add(i);
            names.push(CStr::from_ptr(ibv_get_device_name(device)).to_str().unwrap().to_owned());
            register_memory(device);
        }
        ibv_free_device_list(list);
        names.sort();
        assert_eq!(names, ["roci0", "roci1"]);
    }
}
